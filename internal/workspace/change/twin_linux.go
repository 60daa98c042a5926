package change

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// A file of the source may have several names. What replaces one of them is a file of
// its own, and the others stay what they are. Undo makes it one file again with
// another name that still has it, or with one that it has put back before; where there
// is none, as for names outside of the source, it makes a copy.

// findTwins notes, for each record of a file with several names, another one that the
// plan leaves alone. It looks through the whole source, and only if there are such; what
// it cannot look at has none.
func (j *journal) findTwins(p *plan) {
	wanted := make(map[inode][]*record)
	ours := make(map[string]bool)
	for _, r := range p.Records {
		ours[string(r.Path)] = true
		if r.Links > 1 {
			wanted[r.inode()] = append(wanted[r.inode()], r)
		}
	}
	var top unix.Stat_t
	if len(wanted) == 0 || unix.Fstat(int(j.source.Fd()), &top) != nil {
		return
	}
	_ = tree.Walk(j.source.File, tree.Visitor{
		Enter: func(n *tree.Node) error {
			if n.IsDir() && (n.Stat.Dev != top.Dev || n.Path == j.stage) {
				return fs.SkipDir
			}
			id := inode{n.Stat.Dev, n.Stat.Ino}
			if !n.IsRegular() || wanted[id] == nil || ours[n.Path] {
				return nil
			}
			for _, r := range wanted[id] {
				r.Twin = []byte(n.Path)
			}
			if delete(wanted, id); len(wanted) == 0 {
				return fs.SkipAll
			}
			return nil
		},
		Shut: func(*tree.Node) bool { return true },
	})
}

func (r *record) inode() inode { return r.Before.inode() }

// isBefore says whether a file is still what it was before the plan.
func (r *record) isBefore(now *Print) bool {
	return *now == r.Before || r.Links > 1 && now.isSame(&r.Before)
}

// isSame says whether two prints are of the same file in the same state, but for how
// many names it has: that changes its ctime, too.
func (p *Print) isSame(q *Print) bool {
	same := *p
	same.Ctime = q.Ctime
	return same == *q
}

func (p *Print) inode() inode { return inode{p.Dev, p.Ino} }

// refresh takes down that files have another number of names, once a plan was done or
// undone that changed some of these: that is nobody else's change.
func (b *base) refresh(source root, records []*record) error {
	touched := make(map[inode]bool)
	for _, r := range records {
		if r.Links > 1 {
			touched[r.inode()] = true
		}
	}
	for name, e := range b.entries {
		if e.Print.Type != File || !touched[e.Print.inode()] {
			continue
		}
		now, err := printOf(source, name)
		if err != nil {
			return err
		}
		if now.isSame(&e.Print) {
			e.Print = now
		}
	}
	return nil
}

// relink makes a file that was replaced again, under a name in the staging directory, by
// linking it to another of its names. It returns false if no such name has it.
func (j *journal) relink(p *plan, r *record, stage int, name string) (bool, error) {
	if r.Links < 2 {
		return false, nil
	}
	if len(r.Twin) > 0 {
		now, err := printOf(j.source, string(r.Twin))
		if err != nil {
			return false, err
		}
		if now.Ino == r.Before.Ino && now.Dev == r.Before.Dev {
			return j.linkLike(string(r.Twin), r, stage, name)
		}
	}
	for _, other := range p.Records {
		if other == r || other.Links < 2 || other.inode() != r.inode() {
			continue
		}
		if linked, err := j.linkLike(string(other.Path), r, stage, name); err != nil || linked {
			return linked, err
		}
	}
	return false, nil
}

// linkLike links a file of the source, if it is what was saved of a record. Whoever
// exchanges it meanwhile has the link looked at again.
func (j *journal) linkLike(path string, r *record, stage int, name string) (bool, error) {
	now, err := printOf(j.source, path)
	if err != nil || !now.isLike(&r.Before) {
		return false, err
	}
	if same, err := j.isSaved(path, r); err != nil || !same {
		return false, err
	}
	err = j.source.in(path, func(dir int, base string) error { return unix.Linkat(dir, base, stage, name, 0) })
	if err != nil {
		return false, nil //nolint:nilerr // a copy does, where the kernel refuses the link
	}
	var st unix.Stat_t
	if err := unix.Fstatat(stage, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, failed("stat", path, err)
	}
	if st.Ino == now.Ino && st.Dev == now.Dev {
		return true, nil
	}
	return false, unix.Unlinkat(stage, name, 0)
}

// isSaved says whether a file of the source has the content that was saved.
func (j *journal) isSaved(path string, r *record) (bool, error) {
	now, err := j.source.open(path)
	if err != nil {
		return false, nil //nolint:nilerr // it cannot be told, and is copied
	}
	defer now.Close()
	saved, err := os.Open(j.dir + "/undo/" + r.Saved)
	if err != nil {
		return false, err
	}
	defer saved.Close()
	a, err := now.Stat()
	if err != nil {
		return false, err
	}
	b, err := saved.Stat()
	if err != nil || a.Size() != b.Size() {
		return false, err
	}
	return sameContent(now, saved, a.Size())
}

// parted are the files of a plan that are files of their own now and were not before.
func (p *plan) parted(wishes []wish) (list []string) {
	together := make(map[[2]inode]uint64)
	for i := range wishes {
		if wishes[i].inode != (inode{}) {
			together[[2]inode{p.Records[i].inode(), wishes[i].inode}]++
		}
	}
	for i := range wishes {
		r, w := p.Records[i], &wishes[i]
		if r.Links > 1 && w.new != nil && together[[2]inode{r.inode(), w.inode}] != r.Links {
			list = append(list, w.path)
		}
	}
	return list
}

// alone are the files of a plan that was undone that have fewer names than before.
func (j *journal) alone(p *plan) (list []string, err error) {
	for _, r := range p.Records {
		if r.Links < 2 {
			continue
		}
		st, found, err := j.source.lstat(string(r.Path))
		if err != nil {
			return nil, err
		}
		if found && uint64(st.Nlink) < r.Links {
			list = append(list, string(r.Path))
		}
	}
	return list, nil
}
