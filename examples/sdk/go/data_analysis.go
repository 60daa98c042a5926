package main

import (
	"context"
	"os"
	"strings"

	sdk "github.com/bailey-sandbox/bailey/sdk/go"
)

// analysis is what a model might have written.
const analysis = `
import csv
values = [float(row["value"]) for row in csv.DictReader(open("data.csv"))]
top = max(values)
bars = "".join(
    f'<rect x="{20 * i}" y="{100 - 100 * v / top:.0f}" width="16" height="{100 * v / top:.0f}"/>'
    for i, v in enumerate(values)
)
open("plot.svg", "w").write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{20 * len(values)}" height="100">{bars}</svg>')
print(f"mean {sum(values) / len(values):.2f}")
`

// analyseData lets untrusted code analyse data, and takes back the picture that it
// draws.
func analyseData(ctx context.Context, args []string) (bool, error) {
	client, err := sdk.Connect(sdk.Options{})
	if err != nil {
		return false, err
	}
	defer client.Close()
	sandbox, err := client.Create(ctx, nil)
	if err != nil {
		return false, err
	}
	for name, content := range map[string]string{"data.csv": "value\n3\n1\n4\n1\n5\n9\n2\n6\n", "analyse.py": analysis} {
		if _, err := sandbox.WriteFile(ctx, name, strings.NewReader(content)); err != nil {
			return false, err
		}
	}
	result, err := sandbox.Run(ctx, sdk.Argv("python3", "analyse.py"))
	if err == nil {
		err = result.Check()
	}
	if err != nil {
		return false, err
	}
	_, _ = os.Stdout.Write(result.Stdout)
	picture, err := sandbox.ReadFile(ctx, "plot.svg")
	if err != nil {
		return false, err
	}
	return true, os.WriteFile(args[0], picture, 0o644)
}
