// Lets untrusted code analyse data, and takes back the picture that it draws.
//
//     node examples/sdk/data_analysis.mjs plot.svg

import { writeFile } from "node:fs/promises";

import { Sandbox } from "bailey-sandbox";

// What a model might have written.
const code = `
import csv
values = [float(row["value"]) for row in csv.DictReader(open("data.csv"))]
top = max(values)
bars = "".join(
    f'<rect x="{20 * i}" y="{100 - 100 * v / top:.0f}" width="16" height="{100 * v / top:.0f}"/>'
    for i, v in enumerate(values)
)
open("plot.svg", "w").write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{20 * len(values)}" height="100">{bars}</svg>')
print(f"mean {sum(values) / len(values):.2f}")
`;

const sb = await Sandbox.create();
try {
  await sb.writeFile("data.csv", "value\n3\n1\n4\n1\n5\n9\n2\n6\n");
  await sb.writeFile("analyse.py", code);
  const result = await sb.run(["python3", "analyse.py"], { timeout: 30, check: true });
  process.stdout.write(result.stdout);
  await writeFile(process.argv[2], await sb.readFile("plot.svg"));
} finally {
  await sb.destroy();
}
