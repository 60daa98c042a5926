package finding

import (
	"strconv"
	"strings"
)

// TakeBack is what undoes a denial, which is an entry in a list of a policy: it is
// removed from where it stands or, if that is a preset, taken back by a policy that
// extends it.
func TakeBack(rule, where string) string {
	key, entry, listed := strings.Cut(rule, " ")
	entry, _, _ = strings.Cut(entry, " (") // what a group stands for
	section, list, ok := strings.Cut(key, ".")
	switch {
	case !listed || !ok || strings.Contains(key, "["):
		return "change " + key
	case !isPreset(where):
		return "remove " + key + " " + entry
	}
	return "in a policy that extends it: " + strconv.Quote(section) + ": {" + strconv.Quote(list) + ": [" + strconv.Quote("!"+entry) + "]}"
}

// TakeBackAndGrant is TakeBack where nothing else is granted either, together with
// what grants it; see GrantOf.
func TakeBackAndGrant(rule, where, grant string) string {
	const intro = "in a policy: "
	first := TakeBack(rule, where)
	back, ok := strings.CutPrefix(first, "in a policy that extends it: ")
	if !ok {
		return first + "; then " + grant
	}
	grant, _ = strings.CutPrefix(grant, intro)
	if rest, same := strings.CutPrefix(grant, `"network": {`); same && strings.HasPrefix(back, `"network": {`) {
		return "in a policy that extends it: " + strings.TrimSuffix(back, "}") + ", " + rest
	}
	return first + ", " + grant
}

// isPreset says whether a place is in a preset, which nobody edits: NAME:LINE:COLUMN.
// What has no place is the default policy's.
func isPreset(where string) bool {
	name, _, _ := strings.Cut(where, ":")
	return !strings.HasPrefix(name, "-") && !strings.ContainsAny(name, "/ .")
}
