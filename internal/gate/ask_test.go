package gate

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// person answers questions.
type person struct {
	*config.Conn
	questions chan config.Message // and what is withdrawn
}

func withPerson(t testing.TB) (*person, func(*world)) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	p := &person{config.NewConn(far), make(chan config.Message, 100)}
	go func() {
		for {
			m, err := p.Receive()
			if err != nil {
				close(p.questions)
				return
			}
			p.questions <- m
		}
	}()
	return p, func(w *world) { w.options.Control = config.NewConn(near) }
}

func (p *person) next(t testing.TB) config.Message {
	t.Helper()
	select {
	case m := <-p.questions:
		return m
	case <-time.After(5 * time.Second):
		t.Fatal("nobody asks")
		return config.Message{}
	}
}

func (p *person) silent(t testing.TB, what string) {
	t.Helper()
	select {
	case m := <-p.questions:
		t.Errorf("%s: asked %+v", what, m)
	default:
	}
}

const asking = `{"network": {"allowedDomains": ["www.allowed.example"], "deniedDomains": ["evil.com"], "defaultAction": "ask"}}`

func TestHostIsAskedAboutOnceForAllWhoWait(t *testing.T) {
	p, with := withPerson(t)
	w := newWorld(t, asking, with)
	w.place(80, addressOf(echo(t)))
	results := make(chan int)
	for range 5 {
		go func() {
			status, _ := get(t, w.client(w.http, nil), "http://new.allowed.example/")
			results <- status
		}()
	}
	q := p.next(t)
	if q.Type != config.Question || q.Host != "new.allowed.example" || q.Port != 0 {
		t.Errorf("got %+v", q)
	}
	// Others are not held up, nor is what is denied asked about.
	if status, _ := get(t, w.client(w.http, nil), "http://www.allowed.example/"); status != 200 {
		t.Errorf("a granted host got %d", status)
	}
	if status, _ := get(t, w.client(w.http, nil), "http://evil.com/"); status != 403 {
		t.Errorf("a denied host got %d", status)
	}
	asked, _ := w.traces()
	for _, name := range asked {
		if name == "new.allowed.example." {
			t.Error("the name was resolved before the answer came")
		}
	}
	waiting := func() bool {
		w.asker.mu.Lock()
		defer w.asker.mu.Unlock()
		for _, pending := range w.asker.pending {
			return pending.waiting == 5
		}
		return false
	}
	for range 500 {
		if waiting() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.Answer(config.Message{Type: config.Answer, ID: q.ID, Decision: config.Once})
	for range 5 {
		if status := <-results; status != 200 {
			t.Errorf("got %d", status)
		}
	}
	p.silent(t, "the same host at the same time")
	if e := w.connection("new.allowed.example"); e.Rule != "asked, and allowed" {
		t.Errorf("got %+v", e)
	}
	if got := w.answers(); !slices.Equal(got, []string{"new.allowed.example:80"}) {
		t.Errorf("the answer is recorded for %q", got)
	}
	// Once is once.
	go get(t, w.client(w.http, nil), "http://new.allowed.example/")
	if again := p.next(t); again.Host != "new.allowed.example" {
		t.Errorf("got %+v", again)
	}
}

func TestAnswersHoldUntilTheEnd(t *testing.T) {
	for decision, want := range map[string]int{config.ForRun: 200, config.Refusing: 403} {
		p, with := withPerson(t)
		w := newWorld(t, asking, with)
		w.place(80, addressOf(echo(t)))
		go func() { w.Answer(config.Message{Type: config.Answer, ID: p.next(t).ID, Decision: decision}) }()
		for range 3 {
			status, body := get(t, w.client(w.http, nil), "http://new.allowed.example/")
			if status != want {
				t.Errorf("%s: got %d %q", decision, status, body)
			}
		}
		p.silent(t, decision)
		if want == 403 {
			if e := w.denied("new.allowed.example"); e.Rule != "asked, and refused" {
				t.Errorf("got %+v", e)
			}
		}
	}
}

func TestOneAnswerServesAllRequestsOfAConnection(t *testing.T) {
	p, with := withPerson(t)
	w := newWorld(t, asking, with)
	w.place(80, addressOf(echo(t)))
	go func() { w.Answer(config.Message{Type: config.Answer, ID: p.next(t).ID, Decision: config.Once}) }()
	c := w.client(w.http, nil)
	for range 3 {
		if status, body := get(t, c, "http://new.allowed.example/"); status != 200 {
			t.Errorf("got %d %q", status, body)
		}
	}
	p.silent(t, "the same connection")
}

func TestQuestionIsWithdrawnWhenNobodyWaits(t *testing.T) {
	p, with := withPerson(t)
	w := newWorld(t, asking, with)
	w.asker.timeout = 50 * time.Millisecond
	status, body := get(t, w.client(w.http, nil), "http://new.allowed.example/")
	if status != 403 || !strings.Contains(body, "nobody answered") {
		t.Errorf("got %d %q", status, body)
	}
	question, withdrawn := p.next(t), p.next(t)
	if withdrawn.Type != config.Withdrawn || withdrawn.ID != question.ID {
		t.Errorf("got %+v", withdrawn)
	}
	w.Answer(config.Message{Type: config.Answer, ID: question.ID, Decision: config.ForRun}) // too late
	w.asker.timeout = time.Minute
	go get(t, w.client(w.http, nil), "http://new.allowed.example/")
	if again := p.next(t); again.Type != config.Question || again.ID == question.ID {
		t.Errorf("got %+v", again)
	}
}

func TestQuestionsDoNotPileUp(t *testing.T) {
	p, with := withPerson(t)
	w := newWorld(t, asking, with)
	for i := range maxQuestions {
		go get(t, w.client(w.http, nil), fmt.Sprintf("http://h%d.allowed.example/", i))
	}
	for range maxQuestions {
		p.next(t)
	}
	if status, body := get(t, w.client(w.http, nil), "http://one-more.allowed.example/"); status != 403 {
		t.Errorf("got %d %q", status, body)
	}
	p.silent(t, "one more")
}

func TestWithoutAPersonAQuestionIsADenial(t *testing.T) {
	w := newWorld(t, asking, func(w *world) { w.config.CanAsk = false })
	status, body := get(t, w.client(w.http, nil), "http://new.allowed.example/")
	if status != 403 || !strings.Contains(body, "nobody can be asked") {
		t.Errorf("got %d %q", status, body)
	}
	if _, err := w.resolver().LookupNetIP(t.Context(), "ip", "new.allowed.example"); err == nil {
		t.Error("the name got an address")
	}
	w.untouched("a question that nobody can answer")
}

func TestQuestionsSayWhatAsks(t *testing.T) {
	p, with := withPerson(t)
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "rules": [
		{"host": "allowed.example", "methods": ["POST"], "action": "ask"},
		{"host": "allowed.example", "methods": ["PUT"], "action": "ask"}]}}`, with)
	w.place(80, addressOf(echo(t)))
	send := func(method string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://allowed.example/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		a, err := w.client(w.http, nil).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a.StatusCode
	}
	if got := send("GET"); got != 200 {
		t.Errorf("GET: got %d", got)
	}
	p.silent(t, "what is granted")
	for i, c := range []struct {
		method, decision string
		want             int
	}{{"POST", config.ForRun, 200}, {"PUT", config.Unanswered, 403}, {"PUT", config.Refusing, 403}} {
		go func() {
			q := p.next(t)
			if q.Rule == nil || q.Rule.Methods[0] != c.method {
				t.Errorf("%d: asked %+v", i, q)
			}
			w.Answer(config.Message{Type: config.Answer, ID: q.ID, Decision: c.decision})
		}()
		if got := send(c.method); got != c.want {
			t.Errorf("%d: %s: got %d, want %d", i, c.method, got, c.want)
		}
	}
	// What is settled is not asked again.
	if post, put := send("POST"), send("PUT"); post != 200 || put != 403 {
		t.Errorf("got %d and %d", post, put)
	}
	p.silent(t, "what is settled")
}

func TestQuestionIsWithdrawnWhenTheClientGoes(t *testing.T) {
	p, with := withPerson(t)
	w := newWorld(t, asking, with)
	c := dialGate(t, w.http)
	if _, err := c.Write([]byte("GET http://new.allowed.example/ HTTP/1.1\r\nHost: new.allowed.example\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	q := p.next(t)
	c.Close()
	if gone := p.next(t); gone.Type != config.Withdrawn || gone.ID != q.ID {
		t.Errorf("got %+v", gone)
	}
}

// answers are the hosts that were allowed by an answer, as recorded.
func (w *world) answers() (hosts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Kind == event.Allow && e.Op == event.OpConnect && e.Rule == askedAndAllowed {
			hosts = append(hosts, net.JoinHostPort(e.Host, strconv.Itoa(e.Port)))
		}
	}
	return hosts
}
