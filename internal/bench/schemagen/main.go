// Command schemagen writes the JSON Schemas of what the harness, the sandbox bench and
// the server's load tool report.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailey-sandbox/bailey/internal/bench"
	"github.com/bailey-sandbox/bailey/internal/bench/walls"
	"github.com/bailey-sandbox/bailey/internal/server/load"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2:
		err = write[bench.Report](os.Args[1], "Bailey benchmark", "One run of the harness, with every sample it took. See docs/benchmarking.md.")
	case len(os.Args) == 3 && os.Args[1] == "-walls":
		err = write[walls.Results](os.Args[2], "Bailey sandbox bench", "One run of the sandbox bench, with every sample it took. See docs/sandbox-performance.md.")
	case len(os.Args) == 3 && os.Args[1] == "-load":
		err = write[load.Report](os.Args[2], "Bailey server load", "One run of baileyd load. See docs/server-performance.md.")
	default:
		fmt.Fprintln(os.Stderr, "usage: schemagen [-walls|-load] FILE")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func write[T any](file, title, description string) error {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		return err
	}
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.Title = title
	schema.Description = description
	data, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
