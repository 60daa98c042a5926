package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// DB is a Store in a file of SQLite's.
type DB struct {
	read  *sql.DB
	write *sql.DB              // one connection: SQLite has one writer, and a queue here is fair
	get   *sql.Stmt            // of read
	texts map[string]*sql.Stmt // of write, by the text
	log   *checkpoints
}

var _ Store = (*DB)(nil)

// Open opens the database in a file, makes it if it is missing, and brings it to
// the form that this version knows. The directory must be there.
func Open(ctx context.Context, file string) (*DB, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if err := private(file); err != nil {
		return nil, err
	}
	write, err := openFile(file, "immediate", 1)
	if err != nil {
		return nil, err
	}
	d := &DB{write: write}
	err = d.migrate(ctx)
	if err == nil {
		d.read, err = openFile(file, "deferred", 4)
	}
	if err == nil {
		d.get, err = d.read.PrepareContext(ctx, "SELECT "+columns+" FROM records WHERE kind = ? AND id = ?")
	}
	if err == nil {
		err = d.prepare(ctx)
	}
	if err == nil {
		d.log, err = startCheckpoints(file, write)
	}
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", file, errors.Join(err, d.Close()))
	}
	return d, nil
}

// private makes the file, so that nobody else can ever read it: SQLite gives the
// files beside it the same mode.
func private(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// openFile opens connections. In WAL mode with synchronous=NORMAL a commit is a
// write without a wait for the disk: the kernel has it, whatever becomes of this
// process. Checkpoints, which do wait, are not for who commits.
func openFile(file, lock string, most int) (*sql.DB, error) {
	q := url.Values{
		"_pragma": {"journal_mode(WAL)", "synchronous(NORMAL)", "wal_autocheckpoint(0)", "busy_timeout(10000)", "foreign_keys(ON)"},
		"_txlock": {lock},
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// migrations bring the database from each version to the next. They are never
// changed once released.
var migrations = []string{`
CREATE TABLE records (
	seq      INTEGER PRIMARY KEY AUTOINCREMENT,
	kind     TEXT NOT NULL,
	id       TEXT NOT NULL,
	owner    TEXT NOT NULL,
	name     TEXT NOT NULL,
	parent   TEXT NOT NULL,
	state    TEXT NOT NULL,
	labels   TEXT NOT NULL,
	created  INTEGER NOT NULL,
	expires  INTEGER NOT NULL,
	data     BLOB NOT NULL,
	revision INTEGER NOT NULL,
	UNIQUE (kind, id)
);
CREATE UNIQUE INDEX records_name ON records (kind, owner, name) WHERE name <> '';
CREATE INDEX records_owner ON records (kind, owner, seq);
CREATE INDEX records_parent ON records (kind, parent, seq) WHERE parent <> '';
CREATE INDEX records_expires ON records (kind, expires) WHERE expires > 0;
CREATE TABLE labels (
	seq   INTEGER NOT NULL REFERENCES records (seq) ON DELETE CASCADE,
	name  TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (name, value, seq)
) WITHOUT ROWID;
CREATE INDEX labels_seq ON labels (seq);
CREATE TABLE revisions (last INTEGER NOT NULL);
INSERT INTO revisions VALUES (0);
`}

// What a commit consists of.
const (
	sqlRevision     = "UPDATE revisions SET last = last + 1 RETURNING last"
	sqlCreate       = "INSERT INTO records (kind, id, owner, name, parent, state, labels, created, expires, data, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	sqlFind         = "SELECT seq, labels FROM records WHERE kind = ? AND id = ? AND revision = ?"
	sqlReplace      = "UPDATE records SET owner = ?, name = ?, parent = ?, state = ?, labels = ?, created = ?, expires = ?, data = ?, revision = ? WHERE seq = ?"
	sqlRemove       = "DELETE FROM records WHERE kind = ? AND id = ?"
	sqlRemoveThis   = "DELETE FROM records WHERE kind = ? AND id = ? AND revision = ?"
	sqlCount        = "SELECT count(*) FROM records WHERE kind = ? AND id = ?"
	sqlLabel        = "INSERT INTO labels (seq, name, value) VALUES (?, ?, ?)"
	sqlRemoveLabels = "DELETE FROM labels WHERE seq = ?"
)

// prepare has SQLite read them once: for each commit that would take a quarter of its
// time.
func (d *DB) prepare(ctx context.Context) error {
	d.texts = make(map[string]*sql.Stmt)
	for _, text := range []string{sqlRevision, sqlCreate, sqlFind, sqlReplace, sqlRemove, sqlRemoveThis, sqlCount, sqlLabel, sqlRemoveLabels} {
		s, err := d.write.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		d.texts[text] = s
	}
	return nil
}

// commit is a transaction that uses them.
type commit struct {
	*sql.Tx
	texts map[string]*sql.Stmt
}

func (c *commit) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return c.StmtContext(ctx, c.texts[text]).ExecContext(ctx, args...)
}

func (c *commit) row(ctx context.Context, text string, args ...any) *sql.Row {
	return c.StmtContext(ctx, c.texts[text]).QueryRowContext(ctx, args...)
}

func (d *DB) migrate(ctx context.Context) error {
	return d.transact(ctx, func(tx *commit) error {
		var version int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if version > len(migrations) {
			return fmt.Errorf("it is of version %d, and this program knows %d; use the newer program that made it", version, len(migrations))
		}
		if version == len(migrations) {
			return nil
		}
		for _, m := range migrations[version:] {
			if _, err := tx.ExecContext(ctx, m); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "PRAGMA user_version = "+strconv.Itoa(len(migrations)))
		return err
	})
}

func (d *DB) transact(ctx context.Context, f func(*commit) error) error {
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(&commit{tx, d.texts}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Close closes the database.
func (d *DB) Close() error {
	if d.log != nil {
		d.log.stop()
	}
	var err error
	for _, s := range d.texts {
		err = errors.Join(err, s.Close())
	}
	err = errors.Join(err, d.write.Close())
	if d.get != nil {
		err = errors.Join(err, d.get.Close())
	}
	if d.read != nil {
		err = errors.Join(err, d.read.Close())
	}
	return err
}

// Sync implements Store: a checkpoint waits for the disk before it copies.
func (d *DB) Sync(ctx context.Context) error {
	_, err := checkpoint(ctx, d.write, "PASSIVE")
	return err
}

const columns = "kind, id, owner, name, parent, state, labels, created, expires, data, revision, seq"

func scan(row interface{ Scan(...any) error }) (r *Record, seq int64, err error) {
	r = &Record{}
	var labels string
	var created, expires int64
	if err := row.Scan(&r.Kind, &r.ID, &r.Owner, &r.Name, &r.Parent, &r.State, &labels, &created, &expires, &r.Data, &r.Revision, &seq); err != nil {
		return nil, 0, err
	}
	r.Created, r.Expires = fromMicro(created), fromMicro(expires)
	if labels != "" {
		err = json.Unmarshal([]byte(labels), &r.Labels)
	}
	return r, seq, err
}

// Times are microseconds, and zero is none.
func fromMicro(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func toMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Get implements Store.
func (d *DB) Get(ctx context.Context, kind Kind, id string) (*Record, error) {
	r, _, err := scan(d.get.QueryRowContext(ctx, kind, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, failure(&Record{Kind: kind, ID: id}, ErrNotFound)
	}
	return r, err
}

// where is a query's condition, without paging.
func (q *Query) where() (text string, args []any) {
	parts := []string{"kind = ?"}
	args = []any{q.Kind}
	and := func(part string, values ...any) {
		parts = append(parts, part)
		args = append(args, values...)
	}
	for _, f := range []struct{ column, value string }{{"owner", q.Owner}, {"parent", q.Parent}, {"name", q.Name}} {
		if f.value != "" {
			and(f.column+" = ?", f.value)
		}
	}
	if len(q.States) > 0 {
		var values []any
		for _, s := range q.States {
			values = append(values, s)
		}
		and("state IN (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
	}
	for name, value := range q.Labels {
		and("seq IN (SELECT seq FROM labels WHERE name = ? AND value = ?)", name, value)
	}
	for _, name := range q.Has {
		and("seq IN (SELECT seq FROM labels WHERE name = ?)", name)
	}
	if !q.ExpiredBy.IsZero() {
		and("expires > 0 AND expires <= ?", q.ExpiredBy.UnixMicro())
	}
	return strings.Join(parts, " AND "), args
}

// cursor is a place in a list. What it ends in tells it from any other text that happens
// to be a number.
func cursor(seq int64) string {
	n := strconv.FormatInt(seq, 36)
	return n + "." + strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(n))), 36)
}

func parseCursor(text string) (int64, error) {
	n, _, _ := strings.Cut(text, ".")
	seq, err := strconv.ParseInt(n, 36, 64)
	if err != nil || cursor(seq) != text {
		return 0, ErrCursor
	}
	return seq, nil
}

// List implements Store.
func (d *DB) List(ctx context.Context, q Query) (*Page, error) {
	where, args := q.where()
	beyond, order := " AND seq > ?", " ORDER BY seq"
	if q.Newest {
		beyond, order = " AND seq < ?", " ORDER BY seq DESC"
	}
	if q.After != "" {
		after, err := parseCursor(q.After)
		if err != nil {
			return nil, err
		}
		where += beyond
		args = append(args, after)
	}
	text := "SELECT " + columns + " FROM records WHERE " + where + order
	if q.Limit > 0 {
		text += " LIMIT " + strconv.Itoa(q.Limit+1) // one more tells whether there is a next page
	}
	rows, err := d.read.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	page := &Page{}
	var last int64
	for rows.Next() {
		r, seq, err := scan(rows)
		if err != nil {
			return nil, err
		}
		if q.Limit > 0 && len(page.Records) == q.Limit {
			page.Next = cursor(last)
			break
		}
		page.Records, last = append(page.Records, r), seq
	}
	return page, rows.Err()
}

// Count implements Store.
func (d *DB) Count(ctx context.Context, q Query) (n int, err error) {
	where, args := q.where()
	err = d.read.QueryRowContext(ctx, "SELECT count(*) FROM records WHERE "+where, args...).Scan(&n)
	return n, err
}

// Commit implements Store.
func (d *DB) Commit(ctx context.Context, changes ...Change) error {
	for _, c := range changes {
		if err := c.record.check(); err != nil {
			return err
		}
	}
	var revision int64
	err := d.transact(ctx, func(tx *commit) error {
		err := tx.row(ctx, sqlRevision).Scan(&revision)
		for _, c := range changes {
			if err != nil {
				return err
			}
			switch {
			case c.remove:
				err = remove(ctx, tx, c.record)
			case c.record.Revision == 0:
				err = create(ctx, tx, c.record, revision)
			default:
				err = replace(ctx, tx, c.record, revision)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range changes {
		if !c.remove {
			c.record.Revision = revision
		}
	}
	d.log.grew()
	return nil
}

func create(ctx context.Context, tx *commit, r *Record, revision int64) error {
	labels, err := encodeLabels(r)
	if err != nil {
		return err
	}
	result, err := tx.exec(ctx, sqlCreate,
		r.Kind, r.ID, r.Owner, r.Name, r.Parent, r.State, labels, toMicro(r.Created), toMicro(r.Expires), data(r), revision)
	if err != nil {
		return failure(r, translate(err))
	}
	if len(r.Labels) == 0 {
		return nil
	}
	seq, err := result.LastInsertId()
	if err != nil {
		return err
	}
	return insertLabels(ctx, tx, seq, r)
}

func replace(ctx context.Context, tx *commit, r *Record, revision int64) error {
	labels, err := encodeLabels(r)
	if err != nil {
		return err
	}
	var seq int64
	var before string
	err = tx.row(ctx, sqlFind, r.Kind, r.ID, r.Revision).Scan(&seq, &before)
	if errors.Is(err, sql.ErrNoRows) {
		return failure(r, missing(ctx, tx, r))
	}
	if err != nil {
		return err
	}
	_, err = tx.exec(ctx, sqlReplace,
		r.Owner, r.Name, r.Parent, r.State, labels, toMicro(r.Created), toMicro(r.Expires), data(r), revision, seq)
	if err != nil {
		return failure(r, translate(err))
	}
	if labels == before {
		return nil
	}
	if _, err := tx.exec(ctx, sqlRemoveLabels, seq); err != nil {
		return err
	}
	return insertLabels(ctx, tx, seq, r)
}

func remove(ctx context.Context, tx *commit, r *Record) error {
	text, args := sqlRemove, []any{r.Kind, r.ID}
	if r.Revision != 0 {
		text, args = sqlRemoveThis, append(args, r.Revision)
	}
	result, err := tx.exec(ctx, text, args...)
	if err != nil || r.Revision == 0 {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = failure(r, missing(ctx, tx, r))
	}
	return err
}

// missing says why a record with a revision is not there.
func missing(ctx context.Context, tx *commit, r *Record) error {
	var n int
	if err := tx.row(ctx, sqlCount, r.Kind, r.ID).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return ErrNotFound
	}
	return ErrConflict
}

func insertLabels(ctx context.Context, tx *commit, seq int64, r *Record) error {
	for name, value := range r.Labels {
		if _, err := tx.exec(ctx, sqlLabel, seq, name, value); err != nil {
			return err
		}
	}
	return nil
}

func encodeLabels(r *Record) (string, error) {
	if len(r.Labels) == 0 {
		return "", nil
	}
	b, err := json.Marshal(r.Labels)
	return string(b), err
}

// data is never NULL.
func data(r *Record) []byte {
	if r.Data == nil {
		return []byte{}
	}
	return r.Data
}

// translate tells an id or a name that is taken from other errors.
func translate(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && (e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY) {
		return ErrExists
	}
	return err
}
