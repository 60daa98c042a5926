package broker

import (
	"os"

	"github.com/bailey-sandbox/bailey/internal/ready"
)

// attendant waits for the calls of a sandbox that is idle most of the time. It
// holds no thread meanwhile: the Go runtime waits for all of them at once.
type attendant struct {
	file   *os.File   // the listener once more
	quiet  chan error // the last worker has left
	broker *Broker
}

// idle is how long, in milliseconds, a worker waits for a further call before it
// ends. To start one again costs a tenth of a millisecond.
const idle = 200

// Attend answers calls until Close, in the place of Serve, on threads that exist
// only while calls come.
func (b *Broker) Attend() {
	file, err := ready.Copy(int(b.listener))
	if err != nil {
		b.Close()
		return
	}
	b.attendant = &attendant{file: file, quiet: make(chan error, 1), broker: b}
	if b.open() != nil {
		b.Close()
		return
	}
	b.users.Add(1)
	go b.attendant.run()
}

// Attends says whether calls are answered without Serve.
func (b *Broker) Attends() bool { return b.attendant != nil }

// run starts a worker whenever a call comes and there is none. If it fails,
// nothing is decided any more, so nothing is allowed.
func (a *attendant) run() {
	defer a.broker.leave()
	defer a.broker.Close()
	if !ready.Wait(a.file) {
		return
	}
	for {
		a.broker.startWorker()
		if err := <-a.quiet; err != nil || !ready.Wait(a.file) {
			return
		}
	}
}

// resume says that no worker is left, and why if that was a failure.
func (a *attendant) resume(err error) {
	if a != nil {
		a.quiet <- err
	}
}

// dismiss ends the waiting.
func (a *attendant) dismiss() {
	if a != nil {
		_ = a.file.Close() // a second time it fails, and nothing is lost
	}
}

// patience is how long a worker waits for a call.
func (a *attendant) patience() int {
	if a == nil {
		return -1
	}
	return idle
}
