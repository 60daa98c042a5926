// Command schemagen writes the JSON Schema of the harness's reports.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailey-sandbox/bailey/internal/bench"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schemagen FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func write(file string) error {
	schema, err := jsonschema.For[bench.Report](nil)
	if err != nil {
		return err
	}
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.Title = "Bailey benchmark"
	schema.Description = "One run of the harness, with every sample it took. See docs/benchmarking.md."
	data, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
