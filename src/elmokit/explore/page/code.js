// Text as a literal of Python, and as an argument of a shell.

export const quoted = (text) => JSON.stringify(text).replaceAll(/\\u([0-9a-f]{4})/g, "\\u$1").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

export const shell = (text) => (/^[\w./:=,-]+$/.test(text) && !text.startsWith("-") ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
