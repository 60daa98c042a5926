package pattern

// walker follows one path through a tree. At every moment it is in the nodes
// from which something may still match.
//
// No node is in a list twice: one that is not a loop is entered only from its
// parent and only by its own edge, and a loop is entered once for good. So a
// list never grows longer than the tree has nodes of its kind.
type walker struct {
	tree    *tree
	loops   list    // loops entered
	entered bits    // the same by number
	others  [2]list // other nodes entered by the latest name, and by the one before
	latest  int     // which of the two is which

	// best is the first pattern that matched so far; what comes after it is not
	// followed any more.
	best int32
	// matched is every pattern that matched, for a tracer. best stays none then.
	matched bits
}

// fewNodes is the most nodes of a kind for which a walker's lists are put on the
// stack. Nodes without edges are not listed, so sets that people write have
// fewer.
const fewNodes = 64

func newWalker(t *tree) *walker {
	w := &walker{tree: t, loops: newList(t.loops), entered: newBits(t.loops)}
	w.others = [2]list{newList(t.inner), newList(t.inner)}
	return w
}

// newTracer returns a walker that finds every pattern instead of the first.
func newTracer(t *tree) *walker {
	w := newWalker(t)
	w.matched = newBits(t.count)
	return w
}

// follow goes along the whole path, or to where nothing more can match.
func (w *walker) follow(path string) {
	w.start()
	for at := 0; at < len(path) && w.isOpen(); {
		var name string
		name, at = nextName(path, at)
		w.step(name)
	}
}

// start goes to the root.
func (w *walker) start() {
	w.best = none
	w.loops.length = 0
	w.others[w.latest].length = 0
	clear(w.entered)
	w.enter(0)
}

// step goes on by one name.
func (w *walker) step(name string) {
	if name == "" {
		return
	}
	ends, sketch := endsOf(name), sketch(name)
	loops, others := w.loops.all(), w.others[w.latest].all()
	w.latest = 1 - w.latest
	w.others[w.latest].length = 0
	for _, id := range loops {
		w.leave(id, name, ends, sketch)
	}
	for _, id := range others {
		w.leave(id, name, ends, sketch)
	}
}

// leave enters what a name leads to from a node.
func (w *walker) leave(id int32, name string, ends ends, sketch uint64) {
	n := &w.tree.nodes[id]
	if n.least >= w.best {
		return
	}
	if n.sketches&sketch != 0 {
		if to, ok := n.names[name]; ok {
			w.enter(to)
		}
	}
	for i := range n.wild {
		if e := &n.wild[i]; ends&e.mask == e.value && e.glob.match(name) {
			w.enter(e.to)
		}
	}
}

func (w *walker) enter(id int32) {
	n := &w.tree.nodes[id]
	w.note(n)
	if n.least >= w.best {
		return
	}
	if n.hasEdges() {
		w.others[w.latest].add(id)
	}
	if n.loop == 0 {
		return
	}
	if number := int(w.tree.nodes[n.loop].number); !w.entered.has(number) {
		w.entered.add(number)
		w.loops.add(n.loop)
	}
}

// note records the patterns that end at a node.
func (w *walker) note(n *node) {
	if w.matched == nil {
		w.best = min(w.best, n.first)
		return
	}
	if n.first != none {
		w.matched.add(int(n.first))
	}
	for _, i := range n.also {
		w.matched.add(int(i))
	}
}

// isOpen reports whether a pattern before the best could still match.
func (w *walker) isOpen() bool {
	return w.best > 0 && w.loops.length+w.others[w.latest].length > 0
}

// nextName returns the component of a path that starts at or after at, and where
// it ends. It is empty at the end of the path.
func nextName(path string, at int) (name string, end int) {
	for at < len(path) && path[at] == '/' {
		at++
	}
	end = at
	for end < len(path) && path[end] != '/' {
		end++
	}
	return path[at:end], end
}

// list is a list of nodes. It has its length beside the slice, because a slice
// that is stored anew through a pointer cannot lie on the stack.
type list struct {
	ids    []int32
	length int
}

func newList(n int) list { return list{ids: make([]int32, n)} }

func (l *list) add(id int32) {
	l.ids[l.length] = id
	l.length++
}

func (l *list) all() []int32 { return l.ids[:l.length] }

// bits is a set of small numbers.
type bits []uint64

func newBits(n int) bits { return make(bits, (n+63)/64) }

func (b bits) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }

func (b bits) add(i int) { b[i/64] |= 1 << (i % 64) }
