package problem

import (
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"
)

func TestDetailIsFoundInAWrappedError(t *testing.T) {
	err := fmt.Errorf("outside: %w", NotFound("sandbox", "sb-1"))
	p := Of(err)
	if p.GetReason() != "sandbox_not_found" || p.GetMetadata()["sandbox_id"] != "sb-1" || p.GetRemedy() == "" {
		t.Errorf("detail = %v", p)
	}
	if Of(errors.New("plain")) != nil {
		t.Error("a plain error has a detail")
	}
}

func TestReplacedDetailIsTheOnlyOne(t *testing.T) {
	e := Unavailable("busy", errors.New("no room"))
	p := Of(e)
	p.RequestId = "r1"
	replaced := Replace(e, p)
	if len(replaced.Details()) != 1 || Of(replaced).GetRequestId() != "r1" || !Of(replaced).GetRetryable() {
		t.Errorf("details = %v", replaced.Details())
	}
	if replaced.Code() != connect.CodeUnavailable || replaced.Message() != "no room" {
		t.Errorf("replaced = %v", replaced)
	}
}
