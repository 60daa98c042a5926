package broker

import "testing"

// A process that holds many sandboxes ends if all of them have it wait on as many
// threads as each may, and no sandbox may keep all others from waiting.
func TestCallsOfAllSandboxesThatWaitAreBounded(t *testing.T) {
	const many = 10 * maxAllBeside / maxBeside
	var brokers [many]Broker
	waiting := 0
	for i := range brokers {
		for brokers[i].letWait() {
			waiting++
		}
	}
	if first := brokers[0].beside.Load(); first != maxBeside {
		t.Errorf("the first sandbox has %d calls that wait, want %d", first, maxBeside)
	}
	if later := maxAllBeside/2/maxBeside + 10; brokers[later].beside.Load() != fewBeside {
		t.Errorf("a later one has %d, want %d", brokers[later].beside.Load(), fewBeside)
	}
	if waiting > maxAllBeside {
		t.Errorf("%d calls wait, want at most %d", waiting, maxAllBeside)
	}
	for i := range brokers {
		for brokers[i].beside.Load() > 0 {
			brokers[i].doneWaiting()
		}
	}
	if left := allBeside.Load(); left >= maxBeside {
		t.Errorf("%d are counted though none waits", left)
	}
}
