package bench

import (
	"cmp"
	"math"
	"slices"
)

// Median returns the middle of some values. It is NaN if there are none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Interval returns a range that the true median lies in, with a confidence of at
// least 95 %. It assumes nothing about how the values are distributed: it is
// between two of them, chosen by how often a fair coin falls so unevenly. With
// fewer than [Enough] values no such range exists, and it is the whole span.
func Interval(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	// The largest k such that P(fewer than k of n coins show heads) ≤ 2.5 %.
	k, below, term := 0, 0.0, math.Pow(0.5, float64(n))
	for below+term <= 0.025 && k < (n-1)/2 {
		below += term
		term *= float64(n-k) / float64(k+1)
		k++
	}
	if k > 0 {
		k--
	}
	return sorted[k], sorted[n-1-k]
}

// Enough is how many values it takes for a range with a confidence of 95 %.
const Enough = 6

// rank gives every value its place among all, the mean of the places where
// several are equal. Ties is the sum of t³-t over groups of t equal values.
func rank(values []float64) (ranks []float64, ties float64) {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	ranks = make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			ranks[k] = float64(i+j+1) / 2
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	return ranks, ties
}

// Up to so many values arrangements are counted rather than approximated. Those
// of two samples are many more than those of signs.
const (
	manyInSamples = 20
	manyPairs     = 40
)

// normal returns how likely a value at least so far from the mean is, on either
// side.
func normal(z float64) float64 { return math.Erfc(math.Abs(z) / math.Sqrt2) }

// RankSum is the test of Mann and Whitney: how likely two samples are to differ
// in their ranks at least as much, if they come from one distribution.
func RankSum(a, b []float64) float64 {
	n, m := float64(len(a)), float64(len(b))
	if n == 0 || m == 0 {
		return 1
	}
	ranks, ties := rank(slices.Concat(a, b))
	u := -n * (n + 1) / 2
	for _, r := range ranks[:len(a)] {
		u += r
	}
	if ties == 0 && len(a) <= manyInSamples && len(b) <= manyInSamples {
		return exactRankSum(len(a), len(b), int(u))
	}
	total := n + m
	variance := n * m / 12 * (total + 1 - ties/(total*(total-1)))
	if variance == 0 {
		return 1
	}
	return normal(toMean(u-n*m/2) / math.Sqrt(variance))
}

// toMean moves a difference half a step towards zero: ranks are whole, the normal
// distribution is not.
func toMean(d float64) float64 {
	return math.Copysign(max(0, math.Abs(d)-0.5), d)
}

// exactRankSum counts the arrangements of n and m values whose statistic is as
// far from the middle as u.
func exactRankSum(n, m, u int) float64 {
	// ways[j][k] is the number of arrangements of i and j values with statistic k.
	ways := make([][]float64, m+1)
	for j := range ways {
		ways[j] = make([]float64, n*m+1)
		ways[j][0] = 1
	}
	for i := 1; i <= n; i++ {
		for j := 1; j <= m; j++ {
			// The largest is of the first sample, above all j of the second, or of
			// the second.
			for k := n * m; k >= 0; k-- {
				w := ways[j-1][k]
				if k >= j {
					w += ways[j][k-j]
				}
				ways[j][k] = w
			}
		}
	}
	return tails(ways[m], u)
}

// tails is the share of arrangements in both ends of a symmetric distribution, up
// to and including u.
func tails(ways []float64, u int) float64 {
	all, end := 0.0, 0.0
	u = min(u, len(ways)-1-u)
	for k, w := range ways {
		all += w
		if k <= u {
			end += w
		}
	}
	return min(1, 2*end/all)
}

// SignedRank is the test of Wilcoxon: how likely differences within pairs are to
// lean to one side at least as much, if neither side is preferred.
func SignedRank(differences []float64) float64 {
	var sizes, signs []float64
	for _, d := range differences {
		if d != 0 {
			sizes, signs = append(sizes, math.Abs(d)), append(signs, math.Copysign(1, d))
		}
	}
	n := float64(len(sizes))
	if n == 0 {
		return 1
	}
	ranks, ties := rank(sizes)
	w := 0.0
	for i, r := range ranks {
		if signs[i] > 0 {
			w += r
		}
	}
	if ties == 0 && len(sizes) <= manyPairs {
		return exactSignedRank(len(sizes), int(w))
	}
	variance := n*(n+1)*(2*n+1)/24 - ties/48
	return normal(toMean(w-n*(n+1)/4) / math.Sqrt(variance))
}

// leastRankSum is what RankSum returns for samples of which all of one lie above all
// of the other.
func leastRankSum(n, m int) float64 {
	p := 2.0
	for i := 1; i <= n; i++ {
		p *= float64(i) / float64(m+i)
	}
	return min(1, p)
}

// leastSignedRank is what SignedRank returns for so many differences on one side.
func leastSignedRank(n int) float64 { return min(1, math.Pow(0.5, float64(n-1))) }

func exactSignedRank(n, w int) float64 {
	ways := make([]float64, n*(n+1)/2+1)
	ways[0] = 1
	for r := 1; r <= n; r++ {
		for k := len(ways) - 1; k >= r; k-- {
			ways[k] += ways[k-r]
		}
	}
	return tails(ways, w)
}

// adjust makes probabilities comparable with a rate of false alarms for all of
// them together (Holm): the smallest is multiplied by their number, the next by
// one less, and so on.
func adjust(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	adjusted, largest := make([]float64, len(p)), 0.0
	for i, k := range order {
		largest = max(largest, min(1, p[k]*float64(len(p)-i)))
		adjusted[k] = largest
	}
	return adjusted
}
