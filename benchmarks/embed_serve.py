"""A contender of benchmarks/embed.py in a process of its own: told over standard input what to time.

Plain Python from 3.8 on and nothing of elmokit, because the older tools live in environments of their own. A request
is a line of JSON, and so is the answer; whatever libraries print goes to standard error.
"""

import json
import os
import resource
import sys
import time


def read_sentences(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def reset_peak():
    """Linux counts the peak anew from here; elsewhere it is that of the whole process."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def peak_bytes():
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def serve(load):
    """`load()` gives the contender: told (what it is), mode (its number type), embed(sentences, batch), and
    layers(sentences, path) where it can."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**fields):
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    begin = time.perf_counter()
    try:
        contender = load()
    except Exception as error:  # told to the one who asked, who goes on without this contender
        answer(ready=False, why=f"{type(error).__name__}: {error}")
        return
    answer(ready=True, load_s=time.perf_counter() - begin, peak=peak_bytes(), told=contender.told, mode=contender.mode)
    for line in sys.stdin:
        ask = json.loads(line)
        sentences = read_sentences(ask["sentences"])
        if ask["do"] == "corpus":
            reset_peak()
            begin = time.perf_counter()
            contender.embed(sentences, ask["batch"])
            answer(seconds=time.perf_counter() - begin, peak=peak_bytes())
        elif ask["do"] == "latency":
            took = []
            for sentence in sentences:
                begin = time.perf_counter()
                contender.embed([sentence], 1)
                took.append(1000 * (time.perf_counter() - begin))
            answer(milliseconds=took)
        elif ask["do"] == "layers":
            contender.layers(sentences, ask["path"])
            answer(path=ask["path"])
