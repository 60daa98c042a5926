package pattern

import "math"

// tree is all patterns of a set merged: its edges are components. A path is
// followed along every edge that matches, all at the same time, so that sixty
// names in one directory cost one look into a table, and so do sixty names
// behind the same "**".
type tree struct {
	nodes []node
	count int // of patterns
	inner int // nodes with edges, loops not counted
	loops int
}

// node is what is left to match after some components. Nodes are named by their
// index. The root is 0, which as a child means that there is none.
type node struct {
	names    map[string]int32 // children by name
	sketches uint64           // of the names
	wild     []edge           // children by glob
	// loop is the child behind a "**". It is entered together with this node and
	// never left, since any name may be one that the "**" stands for.
	loop int32

	number int32   // of a loop, among the loops
	first  int32   // pattern that ends here, or none
	also   []int32 // further ones, in order
	least  int32   // first pattern that ends here or further down
}

// none is more than the index of any pattern.
const none = math.MaxInt32

func (n *node) hasEdges() bool { return len(n.wild) > 0 || len(n.names) > 0 }

// edge leads to a child by the names that match a glob. Names whose ends differ
// from value in the bits of mask do not match, which rules out most of them.
type edge struct {
	mask, value ends
	to          int32
	glob        *glob
}

func newEdge(g *glob, to int32) edge {
	e := edge{to: to, glob: g}
	if g.head != "" {
		e.mask |= firstByte
		e.value |= endsOf(g.head) & firstByte
	}
	if g.tail != "" {
		e.mask |= lastByte
		e.value |= endsOf(g.tail) & lastByte
	}
	return e
}

// ends is the first and the last byte of a name.
type ends uint16

const (
	firstByte ends = 0x00ff
	lastByte  ends = 0xff00
)

func endsOf(name string) ends { return ends(name[0]) | ends(name[len(name)-1])<<8 }

// sketch returns one of 64 bits for a name. Whether a node's names have this bit
// among them is faster to see than whether they have the name.
func sketch(name string) uint64 {
	return 1 << ((uint32(endsOf(name))*0x9e3779b1 + uint32(len(name))*0x85ebca6b) >> 26)
}

// builder makes a tree.
type builder struct {
	nodes []node
	count int
	wild  map[wildKey]int32
	loops int32
}

// wildKey names a child by its parent and its glob.
type wildKey struct {
	parent int32
	glob   string
}

func newBuilder(patterns int) *builder {
	b := &builder{nodes: make([]node, 0, 2*patterns+8), wild: make(map[wildKey]int32)}
	b.newNode()
	return b
}

func (b *builder) newNode() int32 {
	b.nodes = append(b.nodes, node{first: none, least: none})
	return int32(len(b.nodes) - 1)
}

// add puts pattern i in, which must be one more than the last.
func (b *builder) add(i int, alternatives [][]component) {
	b.count = i + 1
	for _, components := range alternatives {
		at := int32(0)
		b.nodes[at].least = min(b.nodes[at].least, int32(i))
		for _, c := range components {
			at = b.child(at, c)
			b.nodes[at].least = min(b.nodes[at].least, int32(i))
		}
		b.nodes[at].end(int32(i))
	}
}

// end notes that pattern i ends here, once even if several of its alternatives
// do.
func (n *node) end(i int32) {
	switch {
	case n.first == none:
		n.first = i
	case n.first != i && (len(n.also) == 0 || n.also[len(n.also)-1] != i):
		n.also = append(n.also, i)
	}
}

// child returns the node behind a component, a new one if need be.
func (b *builder) child(parent int32, c component) int32 {
	switch c.kind {
	case literal:
		if to, ok := b.nodes[parent].names[c.name]; ok {
			return to
		}
		to := b.newNode()
		n := &b.nodes[parent]
		if n.names == nil {
			n.names = make(map[string]int32)
		}
		n.names[c.name] = to
		n.sketches |= sketch(c.name)
		return to
	case wild:
		key := wildKey{parent, c.glob.key()}
		if to, ok := b.wild[key]; ok {
			return to
		}
		to := b.newNode()
		b.wild[key] = to
		b.nodes[parent].wild = append(b.nodes[parent].wild, newEdge(c.glob, to))
		return to
	}
	if b.nodes[parent].loop == 0 {
		to := b.newNode()
		b.nodes[to].number = b.loops
		b.loops++
		b.nodes[parent].loop = to
	}
	return b.nodes[parent].loop
}

func (b *builder) tree() tree {
	t := tree{nodes: b.nodes, count: b.count, loops: int(b.loops)}
	for i := range t.nodes {
		if t.nodes[i].hasEdges() {
			t.inner++
		}
	}
	t.inner -= t.loops
	return t
}
