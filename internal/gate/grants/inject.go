package grants

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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
	to, err := form(from)
	if err != nil {
		return to, err
	}
	if slices.Contains(from.Hosts, "*") {
		return to, errors.New(`"*" would send the credential to every host; name the hosts that need it`)
	}
	err = t.each(key, from.Hosts, func(_ string, e Endpoint) { to.Hosts = append(to.Hosts, e.Host) })
	if err != nil {
		return to, err
	}
	to.FromEnv, to.FromCommand = from.FromEnv, from.FromCommand
	if from.FromFile != "" {
		to.FromFile, err = File(from.FromFile, t.options.Home, t.options.Project)
	}
	return to, err
}

// form says how the credential is sent.
func form(from *policy.Injection) (config.Injection, error) {
	var ways []config.Injection
	if from.Bearer != nil && *from.Bearer {
		ways = append(ways, config.Injection{As: config.InHeader, Name: "Authorization", Format: "Bearer {}"})
	}
	if from.Basic != "" {
		ways = append(ways, config.Injection{As: config.InBasic, Name: from.Basic})
	}
	if from.Query != "" {
		ways = append(ways, config.Injection{As: config.InQuery, Name: from.Query})
	}
	if from.Header != "" {
		ways = append(ways, config.Injection{As: config.InHeader, Name: from.Header, Format: from.Format})
	}
	if len(ways) != 1 {
		return config.Injection{}, errors.New("want exactly one of bearer, basic, header and query")
	}
	way := ways[0]
	switch {
	case from.Format != "" && from.Header == "":
		return way, errors.New("format is for header")
	case from.Header == "":
		return way, checkUser(from.Basic)
	case way.Format == "":
		way.Format = "{}"
	case strings.Count(way.Format, "{}") != 1:
		return way, errors.New("format has no place for the value: write {} where it goes")
	}
	return way, checkHeader(way.Name)
}

func checkUser(name string) error {
	if strings.Contains(name, ":") {
		return errors.New("the user of basic authentication cannot have a colon")
	}
	return nil
}

// reserved headers say how a message is framed and where it goes.
var reserved = []string{
	"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive", "expect",
}

func checkHeader(name string) error {
	for _, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) {
			return fmt.Errorf("%q is not allowed in the name of a header", r)
		}
	}
	if lower := strings.ToLower(name); slices.Contains(reserved, lower) || strings.HasPrefix(lower, "proxy-") {
		return fmt.Errorf("the header %s belongs to the connection, and no credential goes there", name)
	}
	return nil
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
