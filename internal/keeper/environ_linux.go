package keeper

import (
	"os"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// The gate of a sandbox that stays is started by the keeper, which has hardly any
// environment of its own. What the gate needs comes from who asks for the sandbox,
// with the plan, and goes to the gate alone.

// rootVariables name the certificates that servers are verified with.
var rootVariables = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// needed is what the gate of a Spec needs of this process's environment: the
// variables of credentials and of roots, and if programs print credentials,
// whatever those may go by. It is nil if there is no gate that could need it.
func needed(s *spec.Spec) []string {
	if s.Gate == nil {
		return nil
	}
	for i := range s.Gate.Config.Inject {
		if len(s.Gate.Config.Inject[i].FromCommand) > 0 {
			return os.Environ()
		}
	}
	return append(environment(), decisive(s, os.Environ())...)
}

// decisive are the variables that make a sandbox another one if their values
// change: those of credentials and of roots. What else a program may go by that
// prints a credential does not count, as hardly two shells have the same.
func decisive(s *spec.Spec, environ []string) []string {
	if s.Gate == nil {
		return nil
	}
	names := slices.Clone(rootVariables)
	for i := range s.Gate.Config.Inject {
		if name := s.Gate.Config.Inject[i].FromEnv; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return chosen(environ, names)
}

// chosen are the variables of these names, in the order of the names.
func chosen(environ, names []string) (list []string) {
	for _, name := range names {
		for _, v := range slices.Backward(environ) { // the last one counts
			if strings.HasPrefix(v, name+"=") {
				list = append(list, v)
				break
			}
		}
	}
	return list
}
