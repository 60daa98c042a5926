// Package rules decides whether a host may be reached. A Set is compiled once
// from the gate's configuration and then asked by any number of goroutines; a
// look-up does not allocate, and costs the same for ten patterns and for ten
// thousand.
package rules

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/address"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

// Scheme is a set of protocols. In a Query it is the one that the connection
// speaks, or none while that is not known.
type Scheme uint8

const (
	HTTP Scheme = 1 << iota
	HTTPS
	SSH
	TCP // any other
)

// anyScheme is every protocol, which is what a rule means that says tcp: bytes,
// whatever they are.
const anyScheme = HTTP | HTTPS | SSH | TCP

var schemes = map[string]Scheme{"http": HTTP, "https": HTTPS, "ssh": SSH, "tcp": anyScheme}

// Query is what is known of a connection or a request. Port 0, no Scheme and no
// Method mean that it is not known yet, or cannot be seen.
type Query struct {
	Host   hostname.Host
	Port   uint16
	Scheme Scheme
	Method string
	Path   *Path // known if Method is
}

// Verdict is what was decided, and by which rule: nil if none matched, in which
// case the Action is the default.
type Verdict struct {
	Action config.Action
	Rule   *config.Rule
}

// Set is an ordered list of rules of which the first that matches decides.
type Set struct {
	rules   []rule
	exact   map[string][]int32
	suffix  map[string][]int32 // by "example.com" for *.example.com
	depths  depths             // how many labels the keys of suffix have
	address map[netip.Addr][]int32
	denied  map[netip.Addr][]int32 // of address, those that deny
	any     []int32
	ranges  ranges
	action  config.Action
	inspect bool
}

// rule is a config.Rule in the form that a look-up wants.
type rule struct {
	ports   []config.Ports
	schemes Scheme
	methods []string
	paths   []pathPattern
	action  config.Action
	inspect bool
	source  *config.Rule
}

// Compile makes a Set of a configuration. An error names the rule.
func Compile(c *config.Config) (*Set, error) {
	s := &Set{
		exact:   map[string][]int32{},
		suffix:  map[string][]int32{},
		address: map[netip.Addr][]int32{},
		denied:  map[netip.Addr][]int32{},
		action:  c.Default,
	}
	switch c.Default {
	case config.Deny, config.Ask, config.Proxy:
	default:
		return nil, fmt.Errorf("the default action cannot be %q", c.Default)
	}
	// Copied, so that what a Verdict points to outlives the configuration.
	sources := slices.Clone(c.Rules)
	for i := range sources {
		if err := s.add(&sources[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", sources[i].Name, err)
		}
	}
	return s, s.addRanges(c.Ranges)
}

func (s *Set) add(source *config.Rule) error {
	r := rule{ports: source.Ports, action: source.Action, inspect: source.Inspect, source: source}
	switch r.action {
	case config.Allow, config.Deny, config.Ask:
	default:
		return fmt.Errorf("the action cannot be %q", r.action)
	}
	for _, name := range source.Schemes {
		scheme, ok := schemes[name]
		if !ok {
			return fmt.Errorf("unknown scheme %q", name)
		}
		r.schemes |= scheme
	}
	for _, m := range source.Methods {
		r.methods = append(r.methods, strings.ToUpper(m))
	}
	for _, p := range source.Paths {
		compiled, err := compilePath(p)
		if err != nil {
			return err
		}
		r.paths = append(r.paths, compiled)
	}
	index := int32(len(s.rules))
	if index == math.MaxInt32 {
		return fmt.Errorf("there are more than %d rules", math.MaxInt32)
	}
	if err := s.index(source.Host, index, r.action); err != nil {
		return err
	}
	s.inspect = s.inspect || r.inspect
	s.rules = append(s.rules, r)
	return nil
}

// index files a rule under its host.
func (s *Set) index(pattern string, i int32, action config.Action) error {
	if pattern == "*" {
		s.any = append(s.any, i)
		return nil
	}
	suffix, wild := strings.CutPrefix(pattern, "*.")
	host, err := hostname.Parse(suffix)
	switch {
	case errors.Is(err, hostname.ErrPunycode):
		// Nobody gets as far as to ask for it. The policy is refused for what can
		// be known without the tables of Unicode, and this is the rest.
	case err != nil:
		return err
	case !wild && host.IsAddr():
		s.address[host.Addr()] = append(s.address[host.Addr()], i)
		if action == config.Deny {
			s.denied[host.Addr()] = append(s.denied[host.Addr()], i)
		}
	case !wild:
		s.exact[host.Name()] = append(s.exact[host.Name()], i)
	case host.IsAddr():
		return fmt.Errorf("%q is no pattern for names", pattern)
	default:
		s.suffix[host.Name()] = append(s.suffix[host.Name()], i)
		s.depths.add(strings.Count(host.Name(), ".") + 1)
	}
	return nil
}

// Inspects says whether any rule opens TLS.
func (s *Set) Inspects() bool { return s.inspect }

// Decide says what happens, now that nothing more will be known. A condition on
// something that cannot be seen keeps a rule from granting, and does not keep it
// from refusing: a rule that asks refuses then, as nobody could be told what
// they are asked for.
func (s *Set) Decide(q Query) Verdict {
	f := s.find(&q)
	if f.decided == none {
		return s.otherwise(&q)
	}
	v := s.verdict(f.decided)
	if v.Action == config.Ask && f.decided != f.certain {
		v.Action = config.Deny
	}
	return v
}

// Foresee says what could happen at best: a denial is certain, and anything
// else depends on what is not known yet.
func (s *Set) Foresee(q Query) Verdict {
	f := s.find(&q)
	if f.doubtful < f.granting && f.granting < f.certain {
		return s.foreseeRest(&q, f.certain)
	}
	if f.granting < f.certain {
		return s.verdict(f.granting)
	}
	if f.certain == none {
		return s.otherwise(&q)
	}
	return s.verdict(f.certain)
}

// MustOpen says whether a rule that opens TLS has a part in the decision about
// this host and port.
func (s *Set) MustOpen(q Query) bool {
	if !s.inspect {
		return false
	}
	q.Scheme, q.Method, q.Path = HTTPS, "", nil
	f := s.find(&q)
	return f.opening <= f.certain && f.opening != none
}

// GrantsAddr says whether an address is granted by itself, as opposed to as
// part of everything: then it may be reached even if it is a private one.
func (s *Set) GrantsAddr(addr netip.Addr, port uint16) bool {
	if s.ranges.find(addr) != nil {
		return true
	}
	f := s.findAddr(addr, port)
	return f.granting != none && f.granting <= f.certain
}

// DeniesAddr returns the rule that denies an address by itself, so that no name
// for it helps.
func (s *Set) DeniesAddr(addr netip.Addr, port uint16) (Verdict, bool) {
	f := s.findAddr(addr, port)
	if f.certain == none || f.granting <= f.certain {
		return Verdict{}, false
	}
	return s.verdict(f.certain), true
}

func (s *Set) findAddr(addr netip.Addr, port uint16) finding {
	f := nothing
	s.addressLists(addr, func(list []int32) { f.visit(s, list, &Query{Port: port}) })
	return f
}

// addressLists gives the rules for an address. What denies an IPv4 address denies
// those that carry it as well; what grants it does not grant them.
func (s *Set) addressLists(addr netip.Addr, visit func([]int32)) {
	visit(s.address[addr])
	if len(s.denied) > 0 {
		address.Carried(addr, func(inner netip.Addr) { visit(s.denied[inner]) })
	}
}

func (s *Set) verdict(i int32) Verdict {
	return Verdict{s.rules[i].action, s.rules[i].source}
}

// otherwise is for a host that no rule decides about.
func (s *Set) otherwise(q *Query) Verdict {
	if r := s.ranges.find(q.Host.Addr()); r != nil {
		return Verdict{config.Allow, r}
	}
	return Verdict{Action: s.action}
}

// finding holds the lowest index of several kinds of rule.
type finding struct {
	decided  int32 // matches if what is not known counts against the client
	certain  int32 // matches, whatever is not known
	granting int32 // allows or asks, and may match
	opening  int32 // opens TLS, and may match
	doubtful int32 // denies, and may match or not
}

const none = math.MaxInt32

var nothing = finding{none, none, none, none, none}

func (s *Set) find(q *Query) finding {
	f := nothing
	s.lists(q.Host, func(list []int32) { f.visit(s, list, q) })
	return f
}

// lists gives the rules whose host matches, in lists that are in order.
func (s *Set) lists(host hostname.Host, visit func([]int32)) {
	visit(s.any)
	if host.IsAddr() {
		s.addressLists(host.Addr(), visit)
		return
	}
	name := host.Name()
	visit(s.exact[name])
	for depth, end := 1, len(name); depth <= s.depths.deepest; depth++ {
		dot := strings.LastIndexByte(name[:end], '.')
		if dot < 0 {
			break // what remains is the whole name, which is not below itself
		}
		if s.depths.has(depth) {
			visit(s.suffix[name[dot+1:]])
		}
		end = dot
	}
}

// visit looks at rules whose host matches, in order, until none can be lower
// than what was found.
func (f *finding) visit(s *Set, list []int32, q *Query) {
	for _, i := range list {
		if i > f.certain {
			return
		}
		r := &s.rules[i]
		m := r.match(q)
		if m == no {
			continue
		}
		if m == yes || r.action != config.Allow {
			f.decided = min(f.decided, i)
		}
		if r.action != config.Deny {
			f.granting = min(f.granting, i)
		} else if m == unknown {
			f.doubtful = min(f.doubtful, i)
		}
		if r.inspect {
			f.opening = min(f.opening, i)
		}
		if m == yes {
			f.certain = i
			return
		}
	}
}

// answer is whether a rule matches.
type answer uint8

const (
	no answer = iota
	unknown
	yes
)

func (r *rule) match(q *Query) answer {
	result := yes
	for _, a := range [...]answer{r.matchPort(q.Port), r.matchScheme(q.Scheme), r.matchMethod(q), r.matchPath(q)} {
		result = min(result, a)
	}
	return result
}

func (r *rule) matchPort(port uint16) answer {
	if len(r.ports) == 0 {
		return yes
	}
	if port == 0 {
		return unknown
	}
	for _, p := range r.ports {
		if port >= p.From && port <= p.To {
			return yes
		}
	}
	return no
}

func (r *rule) matchScheme(scheme Scheme) answer {
	switch {
	case r.schemes == 0 || r.schemes == anyScheme:
		return yes
	case scheme == 0:
		return unknown
	case r.schemes&scheme != 0:
		return yes
	}
	return no
}

// seen says whether a connection could ever show methods and paths. If it speaks
// neither HTTP nor TLS, it has none.
func (q *Query) seen() answer {
	switch {
	case q.Method != "":
		return yes
	case q.Scheme == 0 || q.Scheme&(HTTP|HTTPS) != 0:
		return unknown
	}
	return no
}

func (r *rule) matchMethod(q *Query) answer {
	if len(r.methods) == 0 {
		return yes
	}
	if a := q.seen(); a != yes {
		return a
	}
	result := no
	for _, m := range r.methods {
		switch {
		case m == q.Method:
			return yes
		case !strings.EqualFold(m, q.Method):
		// Some servers take "delete" for DELETE, and others do not.
		case r.action == config.Deny:
			return yes
		case r.action == config.Ask:
			result = unknown
		}
	}
	return result
}

func (r *rule) matchPath(q *Query) answer {
	if len(r.paths) == 0 {
		return yes
	}
	if a := q.seen(); a != yes {
		return a
	}
	result := no
	for i := range r.paths {
		switch {
		case q.Path.mustMatch(&r.paths[i]):
			return yes
		case r.action == config.Deny && q.Path.mayMatch(&r.paths[i]):
			return yes
		case r.action == config.Ask && q.Path.mayMatch(&r.paths[i]):
			result = unknown
		}
	}
	return result
}

// depths is a set of numbers of labels.
type depths struct {
	bits    [2]uint64 // a name has at most 127 labels
	deepest int
}

func (d *depths) add(n int) {
	d.bits[n/64&1] |= 1 << (n % 64)
	d.deepest = max(d.deepest, n)
}

func (d *depths) has(n int) bool { return d.bits[n/64&1]&(1<<(n%64)) != 0 }
