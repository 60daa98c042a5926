package pattern

import "strings"

// Alternative is one of the patterns without braces that a pattern stands for,
// as its components: what each matches is told by the other components of the
// same pattern only through their order.
type Alternative []Component

// Component is what an Alternative says about one name, or where it is "**",
// about any number of them.
type Component struct {
	// Text is the name itself where Literal is set, and the glob as it is written
	// otherwise.
	Text    string
	Literal bool
}

// IsAnyDepth says whether the component is "**".
func (c Component) IsAnyDepth() bool { return !c.Literal && c.Text == "**" }

// Alternatives writes a pattern's braces out. A "**" at the end, which adds
// nothing, is left out, so that "/**" has no components.
func Alternatives(text string) ([]Alternative, error) {
	parsed, err := parse(text)
	if err != nil {
		return nil, err
	}
	out := make([]Alternative, len(parsed))
	for i, components := range parsed {
		out[i] = make(Alternative, len(components))
		for j, c := range components {
			out[i][j] = Component{c.text(), c.kind == literal}
		}
	}
	return out, nil
}

func (c component) text() string {
	switch c.kind {
	case literal:
		return c.name
	case wild:
		return c.glob.key()
	}
	return "**"
}

// String is the alternative as a pattern.
func (a Alternative) String() string {
	var b strings.Builder
	b.WriteByte('/')
	for i, c := range a {
		if i > 0 {
			b.WriteByte('/')
		}
		if c.Literal {
			b.WriteString(Quote(c.Text))
		} else {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}
