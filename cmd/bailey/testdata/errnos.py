"""Does every operation on every kind of file, each in a tree of its own.

"errnos.py make" makes the trees in the working directory, and "errnos.py try"
does the operations there and prints how each ended, a line each.
"""

import errno
import itertools
import os
import sys

NAMES = [
    "file", "empty", "full", "full/inner", "link", "dangling", "loop", "fifo", "closed/inner", "missing", "missing/x", "file/x", "file/",
    "empty/", "missing/", "dirlink", "dirlink/", "dirlink/inner", ".", "", "x" * 256,
]

ONE = {
    "chmod": lambda p: os.chmod(p, 0o750),
    "chown": lambda p: os.chown(p, os.getuid(), os.getgid()),
    "lchown": lambda p: os.lchown(p, os.getuid(), os.getgid()),
    "mkdir": lambda p: os.mkdir(p, 0o755),
    "mkfifo": lambda p: os.mkfifo(p, 0o644),
    "mknod": lambda p: os.mknod(p, 0o100644),
    "rmdir": os.rmdir,
    "symlink": lambda p: os.symlink("file", p),
    "readlink": os.readlink,
    "truncate": lambda p: os.truncate(p, 2),
    "truncate to less than nothing": lambda p: os.truncate(p, -1),
    "unlink": os.unlink,
    "utimensat": lambda p: os.utime(p, ns=(1, 2)),
    "utimensat of the link": lambda p: os.utime(p, ns=(1, 2), follow_symlinks=False),
    "stat": os.stat,
    "setxattr": lambda p: os.setxattr(p, "user.x", b"1"),
    "removexattr": lambda p: os.removexattr(p, "user.x"),
    "list": os.listdir,
}
for name, flags in {
    "read": os.O_RDONLY, "write": os.O_WRONLY, "append": os.O_WRONLY | os.O_APPEND, "cut": os.O_WRONLY | os.O_TRUNC,
    "create": os.O_WRONLY | os.O_CREAT, "create anew": os.O_WRONLY | os.O_CREAT | os.O_EXCL, "directory": os.O_RDONLY | os.O_DIRECTORY,
    "no link": os.O_RDWR | os.O_NOFOLLOW, "create a directory": os.O_RDONLY | os.O_CREAT | os.O_DIRECTORY, "path": os.O_PATH | os.O_NOFOLLOW,
    "unnamed": os.O_RDWR | os.O_TMPFILE,
}.items():
    ONE["open to " + name] = lambda p, flags=flags: os.close(os.open(p, flags | os.O_NONBLOCK, 0o644))

TWO = {"link": lambda p, q: os.link(p, q, follow_symlinks=False), "rename": os.rename}
PAIRS = ["file", "empty", "full", "link", "fifo", "closed/inner", "missing", "missing/x", "file/x", "full/inner", "."]

CASES = [(op, (p,)) for op, p in itertools.product(ONE, NAMES)] + [(op, pair) for op, pair in itertools.product(TWO, itertools.product(PAIRS, PAIRS))]


def make():
    for i in range(len(CASES)):
        d = "%04d" % i
        for sub in ("", "/empty", "/full", "/closed"):
            os.mkdir(d + sub)
        for f in ("/file", "/full/inner", "/closed/inner"):
            with open(d + f, "w") as out:
                out.write("text")
        os.symlink("file", d + "/link")
        os.symlink("missing", d + "/dangling")
        os.symlink("loop", d + "/loop")
        os.symlink("full", d + "/dirlink")
        os.mkfifo(d + "/fifo")
        os.chmod(d + "/closed", 0o500)


def attempt():
    top = os.getcwd()
    for i, (op, paths) in enumerate(CASES):
        os.chdir("%s/%04d" % (top, i))
        try:
            (ONE.get(op) or TWO[op])(*paths)
            how = "done"
        except OSError as e:
            how = errno.errorcode[e.errno]
        left = sorted(os.listdir("."))
        print(op, " ".join(p[:9] + "*%d" % len(p) if len(p) > 99 else repr(p) for p in paths), how, len(left), sep="\t")


{"make": make, "try": attempt}[sys.argv[1]]()
