package keeper

import (
	"slices"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

func TestAnswersAreNoSignals(t *testing.T) {
	var q questions
	for _, decision := range decisions {
		slot, answer, ok := q.begin()
		if !ok {
			t.Fatal("no place for a question")
		}
		b := answerByte(slot, decision)
		if b <= 64 {
			t.Errorf("%s is signal %d", decision, b)
		}
		q.answer(b)
		q.answer(answerByte(slot, config.Once)) // too late
		if got := <-answer; got != decision {
			t.Errorf("got %s, want %s", got, decision)
		}
	}
	if got := answerByte(3, "nonsense"); got != answerByte(3, config.Unanswered) {
		t.Errorf("got %#x", got)
	}
}

func TestQuestionsEndWithTheirClient(t *testing.T) {
	var q questions
	var slots []byte
	var last <-chan string
	for {
		slot, answer, ok := q.begin()
		if !ok {
			break
		}
		slots, last = append(slots, slot), answer
	}
	if len(slots) != maxSlots || slices.Max(slots) != maxSlots-1 {
		t.Errorf("got %v", slots)
	}
	q.end(5)
	if slot, _, ok := q.begin(); !ok || slot != 5 {
		t.Errorf("got %d, %v, want the place that is free again", slot, ok)
	}
	q.close()
	if _, open := <-last; open {
		t.Error("somebody still waits")
	}
	q.answer(answerByte(5, config.Once))
	q.end(5)
	if _, _, ok := q.begin(); ok {
		t.Error("somebody who is gone is asked")
	}
}
