package server

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// withinBound refuses what a client's own policy asks for and the bound would take away
// again, so that nobody takes for granted what is not. What presets ask for beyond it is
// left out: they are for every machine. It looks at no file: whether one of the machine's
// exists is not for clients.
func withinBound(text string) error {
	if text == "" {
		return nil
	}
	p, err := policy.Parse("policy", []byte(text))
	if err != nil {
		return nil //nolint:nilerr // compile says so
	}
	limit, err := policy.Parse("bound", []byte(bound))
	if err != nil {
		return err
	}
	left := policy.Intersect(*p, *limit)
	for _, s := range []struct {
		name       string
		want, have any
	}{
		{"network", p.Network, left.Network},
		{"command", p.Command, left.Command},
		{"ssh", p.SSH, left.SSH},
		{"devices", p.Devices, left.Devices},
	} {
		if key := lost(s.want, s.have); key != "" {
			return notPermitted(s.name+"."+key, "a client's policy cannot grant it")
		}
	}
	return filesWithin(&p.Filesystem)
}

// lost is the first key of a section that has a value and another one in the second.
// The order of rules may change; what becomes of each does not.
func lost(want, have any) string {
	w, h := reflect.ValueOf(want), reflect.ValueOf(have)
	for i := range w.NumField() {
		key, _, _ := strings.Cut(w.Type().Field(i).Tag.Get("json"), ",")
		if w.Field(i).IsZero() || key == "rules" {
			continue
		}
		if !reflect.DeepEqual(w.Field(i).Interface(), h.Field(i).Interface()) {
			return key
		}
	}
	return ""
}

// notPermitted is the answer to a policy of a client that asks for what is an
// administrator's to grant.
func notPermitted(key, why string) error {
	remedy := "leave it out, or use a token with the scope admin"
	if key == "network.exposePorts" {
		remedy = "name the ports in ports of the request"
	}
	return problem.New(connect.CodePermissionDenied, "policy_not_permitted", fmt.Errorf("%s: %s", key, why), problem.About("key", key), problem.Remedy("%s", remedy))
}

func filesWithin(f *policy.Filesystem) error {
	if f.DefaultDenyRead != nil && !*f.DefaultDenyRead {
		return notPermitted("filesystem.defaultDenyRead", "a client's policy cannot grant every file")
	}
	granted := policy.Default().Filesystem
	readable := func(p string) bool { return within(granted.AllowRead, p) && !within(granted.DenyRead, p) }
	for _, list := range []struct {
		key     string
		entries []string
		may     func(string) bool
	}{
		{"filesystem.allowRead", f.AllowRead, readable},
		{"filesystem.allowWrite", f.AllowWrite, func(string) bool { return false }},
		{"filesystem.privateWrite", f.PrivateWrite, func(string) bool { return false }},
	} {
		for _, entry := range list.entries {
			if p, machine := ofMachine(entry); machine && !list.may(p) {
				return notPermitted(list.key, fmt.Sprintf("%q is not among what clients are granted of the machine's files", entry))
			}
		}
	}
	return nil
}

func within(dirs []string, p string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return spec.Covers(dir, p) })
}

// ofMachine returns the path that an entry of a policy is about, or is below for a pattern, and
// whether that is the machine's: not in the workspace nor something of which each sandbox
// has its own. There is no home directory for ~ to be.
func ofMachine(entry string) (string, bool) {
	p, plain := pattern.Plain(entry)
	if !plain {
		p = path.Dir(entry[:strings.IndexAny(entry+"*", "*?[{\\")] + "x")
	}
	if strings.HasPrefix(p, "~") {
		return "", false
	}
	if !strings.HasPrefix(p, "/") {
		p = path.Join(workspaceDir, p)
	}
	p = path.Clean(p)
	return p, !spec.Covers(workspaceDir, p) && !spec.IsOwn(p) && p != "/tmp" && p != "/var/tmp"
}
