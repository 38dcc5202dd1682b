"""elmokit inside other libraries: thin, one file each."""
