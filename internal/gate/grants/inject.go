package grants

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

func (t *translation) inject() error {
	for i := range t.policy.Network.Inject {
		key := fmt.Sprintf("network.inject[%d]", i)
		injection, err := t.injection(key, &t.policy.Network.Inject[i])
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		t.config.Inject = append(t.config.Inject, injection)
	}
	return nil
}

func (t *translation) injection(key string, from *policy.Injection) (config.Injection, error) {
	if _, err := from.Check(); err != nil { // it may come from no file
		return config.Injection{}, err
	}
	to := form(from)
	err := t.each(key, from.Hosts, func(_ string, e Endpoint) { to.Hosts = append(to.Hosts, e.Host) })
	if err != nil {
		return to, err
	}
	to.FromEnv, to.FromCommand = from.FromEnv, from.FromCommand
	if from.FromFile != "" {
		to.FromFile, err = File(from.FromFile, t.options.Home, t.options.Project)
	}
	return to, err
}

// form says how the credential is sent, which a checked entry says in one way.
func form(from *policy.Injection) config.Injection {
	switch {
	case from.Basic != "":
		return config.Injection{As: config.InBasic, Name: from.Basic}
	case from.Query != "":
		return config.Injection{As: config.InQuery, Name: from.Query}
	case from.Header != "":
		return config.Injection{As: config.InHeader, Name: from.Header, Format: cmp.Or(from.Format, "{}")}
	}
	return config.Injection{As: config.InHeader, Name: "Authorization", Format: "Bearer {}"}
}

// File is the path that fromFile means: "~/" is the home, and what is relative is
// so to the project.
func File(name, home, project string) (string, error) {
	below, inHome := strings.CutPrefix(name, "~")
	base := project
	switch {
	case inHome:
		name, base = below, home
	case filepath.IsAbs(name):
		return filepath.Clean(name), nil
	}
	if !filepath.IsAbs(base) {
		return "", fmt.Errorf("fromFile %s: write an absolute path", name)
	}
	return filepath.Join(base, name), nil
}
