// Command harness does what scripts/benchmark.sh cannot do in a shell: it joins
// the rounds of a run into one report, and takes launches apart.
//
// In each round the script runs every variant of a workload once, in rotating
// order, so that a machine that slows down slows all variants alike.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

const usage = `usage: harness collect ROUNDS OUTPUT-DIRECTORY
       harness launches COUNT OUTPUT-FILE BUILD=PROGRAM [BUILD=PROGRAM]`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "collect":
		return collect(args[1], args[2], time.Now().UTC())
	case len(args) >= 4 && args[0] == "launches":
		count, err := strconv.Atoi(args[1])
		if err != nil || count < 1 {
			return fmt.Errorf("%s: not a number of launches", args[1])
		}
		return launches(count, args[2], args[3:])
	}
	return errors.New(usage)
}
