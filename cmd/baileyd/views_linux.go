package main

import "github.com/bailey-sandbox/bailey/internal/rulefs"

// showViews is the process that shows directories under path permissions, if the
// program was called to be one.
func showViews(args []string) (is bool, err error) { return rulefs.Main(args) }
