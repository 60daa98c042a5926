package main

import (
	"io"
	"os"

	"github.com/bailey-sandbox/bailey/internal/top"
)

// boxTop shows the sandboxes that stay on the terminal.
func boxTop(stderr io.Writer) int {
	status, err := top.Run(os.Stdin, os.Stdout)
	if err != nil {
		return answer(stderr, "bailey: "+err.Error()+"\n", exitOwn)
	}
	return status
}
