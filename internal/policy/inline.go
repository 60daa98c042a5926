package policy

import "fmt"

// Inline resolves policies that were given as text, by a flag or a program,
// rather than in a file. The first is the policy; each further one only takes
// away. They are the caller's own words and need no trust. Relative names in
// extends are relative to o.Dir.
func Inline(o Options, name string, texts ...string) (*Loaded, error) {
	l, err := newLoader(o)
	if err != nil {
		return nil, err
	}
	out := &Loaded{Root: o.Dir}
	for i, text := range texts {
		label := name
		if len(texts) > 1 {
			label = fmt.Sprintf("%s (%d of %d)", name, i+1, len(texts))
		}
		chain, p, err := l.inline(label, text)
		if err != nil {
			return nil, err
		}
		out.Chain = append(out.Chain, chain...)
		if i == 0 {
			out.Policy = p
		} else {
			out.Policy = Intersect(out.Policy, p)
		}
	}
	if o.Agent != "" {
		out.Chain = append(out.Chain, Link{KindPreset, o.Agent, true})
	}
	out.Files = l.files
	return out, nil
}

func (l *loader) inline(name, text string) ([]Link, Policy, error) {
	p, err := Parse(name, []byte(text))
	if err != nil {
		return nil, Policy{}, err
	}
	w := &walk{loader: l}
	this := layer{source: source{kind: KindFlags, name: name}, policy: *p}
	for _, next := range this.extends() {
		pos := p.Origins[Origin{"extends", next}]
		below, err := w.resolve(next, l.Dir)
		if err != nil {
			return nil, Policy{}, placed(pos, err)
		}
		if err := w.visit(below, []layer{this}, pos); err != nil {
			return nil, Policy{}, err
		}
	}
	w.layers = append(w.layers, this)
	chain, folded, err := w.fold()
	if err != nil {
		return nil, Policy{}, err
	}
	return chain, l.override(folded), idle(folded, l.Overrides, commandLine)
}
