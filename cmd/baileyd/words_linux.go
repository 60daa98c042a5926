package main

import (
	"fmt"
	"slices"
	"strings"
)

// uses says which flags the words of a verb have a use for. Flags are named as people
// write them, without values.
type uses map[string][]string

// fit refuses a flag that a word has no use for: whoever gives one expects something
// of it.
func (u uses) fit(verb, word string, flags []string) error {
	for _, flag := range flags {
		flag, _, _ = strings.Cut(flag, "=")
		if slices.Contains(u[word], flag) {
			continue
		}
		var others []string
		for other, list := range u {
			if slices.Contains(list, flag) {
				others = append(others, "bailey "+verb+" "+other)
			}
		}
		slices.Sort(others)
		if len(others) == 0 {
			return fmt.Errorf("bailey %s %s takes no %s", verb, word, flag)
		}
		return fmt.Errorf("bailey %s %s takes no %s; it goes with %s", verb, word, flag, strings.Join(others, " and "))
	}
	return nil
}
