package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy/notation"
)

// This file holds what the tags of a struct cannot say: which of its keys do not
// go together. Each Check names the key at fault, "" if it is none alone.

// checkAlone refuses what no one file can mean, although several together may come
// to it: ports of loopback that lead nowhere.
func (p *Policy) checkAlone() error {
	n := &p.Network
	if said(n.AllowLocalOutbound, true) {
		return nil
	}
	const key = "network.allowLocalOutboundPorts"
	for _, port := range n.AllowLocalOutboundPorts {
		if !strings.HasPrefix(port, "!") {
			return placed(p.Origins[Origin{key, port}], errors.New(key+`: "allowLocalOutbound": false closes every port of loopback; leave it out to reach those that are named`))
		}
	}
	return nil
}

// Check refuses conditions that no connection of the rule's protocols ever meets.
func (r NetworkRule) Check() (key string, err error) {
	web := func(s string) bool { return s != "ssh" }
	if len(r.Schemes) == 0 || slices.ContainsFunc(r.Schemes, web) {
		return "", nil
	}
	const fix = `remove it, or add "https" to schemes`
	switch {
	case len(r.Methods) > 0:
		return "methods", errors.New("ssh has no methods; " + fix)
	case len(r.Paths) > 0:
		return "paths", errors.New("ssh has no paths; " + fix)
	case said(r.Inspect, false):
		return "inspect", errors.New("ssh has no TLS that could be opened; " + fix)
	}
	return "", nil
}

// Check refuses a credential of which it is not clear where it comes from, how it
// is sent, or to whom.
func (i Injection) Check() (key string, err error) {
	if count(i.FromEnv != "", i.FromFile != "", len(i.FromCommand) > 0) != 1 {
		return "", errors.New("want exactly one of fromEnv, fromFile and fromCommand")
	}
	switch {
	case len(i.Hosts) == 0:
		return "hosts", errors.New("hosts is empty")
	case slices.Contains(i.Hosts, "*"):
		return "hosts", errors.New(`"*" would send the credential to every host; name the hosts that need it`)
	case said(i.Optional, false) && i.FromEnv == "":
		return "optional", errors.New("optional goes with fromEnv")
	case count(said(i.Bearer, false), i.Basic != "", i.Query != "", i.Header != "") != 1:
		return "", errors.New("want exactly one of bearer, basic, header and query")
	case strings.Contains(i.Basic, ":"):
		return "basic", errors.New("the user of basic authentication cannot have a colon")
	case i.Format != "" && i.Header == "":
		return "format", errors.New("format is for header")
	case i.Format != "" && strings.Count(i.Format, "{}") != 1:
		return "format", errors.New("format has no place for the value: write {} where it goes")
	case i.Header != "":
		return "header", checkHeader(i.Header)
	}
	return "", nil
}

func count(list ...bool) (n int) {
	for _, given := range list {
		if given {
			n++
		}
	}
	return n
}

// reservedHeaders say how a message is framed and where it goes.
var reservedHeaders = []string{
	"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive", "expect",
}

func checkHeader(name string) error {
	if err := notation.CheckHeader(name); err != nil {
		return err
	}
	if lower := strings.ToLower(name); slices.Contains(reservedHeaders, lower) || strings.HasPrefix(lower, "proxy-") {
		return fmt.Errorf("the header %s belongs to the connection, and no credential goes there", name)
	}
	return nil
}
