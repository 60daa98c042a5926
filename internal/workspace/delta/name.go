package delta

import (
	"hash/fnv"
	"os"
	"strconv"
	"time"
)

var (
	adjectives = [...]string{
		"amber", "bold", "brisk", "calm", "clear", "crisp", "deep", "early", "fair", "firm", "fresh", "glad", "green", "keen", "kind", "late",
		"light", "lively", "mild", "neat", "plain", "proud", "quick", "quiet", "rapid", "ready", "sharp", "still", "swift", "tidy", "warm", "wise",
	}
	nouns = [...]string{
		"alder", "arch", "barn", "birch", "brook", "cedar", "cliff", "cove", "dale", "elm", "fern", "field", "ford", "gate", "glen", "grove",
		"hazel", "heath", "hill", "keep", "lake", "larch", "maple", "marsh", "mill", "moat", "oak", "pine", "ridge", "tower", "vale", "wall",
	}
)

// makeName returns a name that can be read out. It need not be unique: who makes
// a workspace asks for another where the name is taken.
func makeName(attempt int) string {
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt(nil, time.Now().UnixNano(), 36))
	_, _ = h.Write(strconv.AppendInt(nil, int64(os.Getpid()), 36))
	n := h.Sum64()
	name := adjectives[n%32] + "-" + nouns[n>>8%32]
	if attempt > 2 {
		name += "-" + strconv.FormatUint(n>>16%1000, 10)
	}
	return name
}
