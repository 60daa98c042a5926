"""Lets untrusted code analyse data, and takes back the picture that it draws.

    python3 examples/sdk/data_analysis.py plot.svg
"""

import sys

from bailey import Sandbox

# What a model might have written.
CODE = """
import csv
values = [float(row["value"]) for row in csv.DictReader(open("data.csv"))]
top = max(values)
bars = "".join(
    f'<rect x="{20 * i}" y="{100 - 100 * v / top:.0f}" width="16" height="{100 * v / top:.0f}"/>'
    for i, v in enumerate(values)
)
open("plot.svg", "w").write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{20 * len(values)}" height="100">{bars}</svg>')
print(f"mean {sum(values) / len(values):.2f}")
"""


def main() -> None:
    with Sandbox.create() as sb:
        sb.write_file("data.csv", "value\n3\n1\n4\n1\n5\n9\n2\n6\n")
        sb.write_file("analyse.py", CODE)
        print(sb.run(["python3", "analyse.py"], timeout=30, check=True).stdout, end="")
        picture = sb.read_file("plot.svg")
    with open(sys.argv[1], "wb") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
