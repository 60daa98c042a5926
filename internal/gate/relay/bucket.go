package relay

import (
	"math"
	"sync"
	"time"
)

// Bucket shares a bandwidth among relays. Who has carried something pays for it
// with time before carrying more. A nil Bucket has no limit.
type Bucket struct {
	rate int64 // bytes a second

	mu   sync.Mutex
	next time.Time // when all that was carried is paid for
}

// NewBucket limits to this many bytes a second; nil if that is 0.
func NewBucket(rate int64) *Bucket {
	if rate <= 0 {
		return nil
	}
	return &Bucket{rate: rate}
}

// chunk is how much may be carried before it is paid for: a twentieth of a
// second's worth.
func (b *Bucket) chunk() int64 {
	if b == nil {
		return math.MaxInt64
	}
	return max(b.rate/20, 512)
}

// Pay waits as long as n bytes take.
func (b *Bucket) Pay(n int64) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	now := time.Now()
	if b.next.Before(now) {
		b.next = now
	}
	b.next = b.next.Add(time.Duration(float64(n) / float64(b.rate) * float64(time.Second)))
	wait := b.next.Sub(now)
	b.mu.Unlock()
	<-time.NewTimer(wait).C
}
