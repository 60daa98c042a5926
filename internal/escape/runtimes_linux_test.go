package escape

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// withBubblewrap are the attacks that meet a wall which bubblewrap makes, or which
// stands inside what it makes.
var withBubblewrap = []string{
	"TestProtectedNameDoesNotComeIntoBeing", "TestFileThatComesLaterIsNotRead", "TestEgressSocketLetsOutWhatIsGrantedOnly", "TestWayToTheGateCannotBeChanged",
	"TestCallsOf32BitProgramsAreRefused", "TestKernelInterfacesAreClosed", "TestNoNewNamespaces", "TestMountsAreNotChanged",
	"TestDeviceNodesAreNeitherMadeNorOpened", "TestFilesAreNotOpenedByHandle", "TestMachineIsNotConfigured", "TestSetuidProgramGainsNothing",
	"TestHostIsNotReachedByAddress", "TestAbstractSocketsOfTheHostAreOutOfReach", "TestPathnameSocketsOfTheHostAreOutOfReach",
	"TestProcessesOutsideCannotBeInspected", "TestSignalsDoNotReachTheHost", "TestDaemonDoesNotOutliveTheSandbox", "TestDaemonDiesWithItsLauncher",
	"TestProtectedFileIsNotWritten", "TestRenamedParentStaysProtected", "TestExchangedPathStaysProtected", "TestBaileysOwnFilesAreNotWritten",
	"TestSecretsOfTheHomeAreNotRead", "TestDeniedPathIsNotRead", "TestSharedDirectoriesOfTheHostAreOutOfReach", "TestEnvironmentOfTheLauncherIsNotRead",
	"TestOnlyStreamsAreInherited", "TestReadOnlyStdinIsNotWritten", "TestNothingIsWrittenOutsideTheGrant", "TestSystemFilesAreNotWritten", "TestGrantedDirectoryIsWritten",
}

// withContainers are the attacks that meet a wall which only the broker or Landlock holds
// in a container, or which the container itself is.
var withContainers = []string{
	"TestProtectedNameDoesNotComeIntoBeing", "TestProtectedNameDoesNotComeIntoBeingWithReadPatterns", "TestNoNodeAndNoOwnersProgramIsLeft",
	"TestDeniedPatternIsNotRacedAround", "TestFileOfADeniedPatternIsNotRemovedOrMarked", "TestNameOfADeniedPatternDoesNotComeIntoBeing", "TestBrokerDoesNotLendItsRights",
	"TestOwnSocketIsReached", "TestArgumentsThatChangeAreNotExecuted", "TestDeniedPathIsNotRead",
	"TestKernelInterfacesAreClosed", "TestNoNewNamespaces", "TestMountsAreNotChanged", "TestDeviceNodesAreNeitherMadeNorOpened", "TestFilesAreNotOpenedByHandle",
	"TestAbstractSocketsOfTheHostAreOutOfReach", "TestProcessesOutsideCannotBeInspected", "TestGrantedDirectoryIsWritten",
	"TestMachineIsNotConfigured", "TestPathnameSocketsOfTheHostAreOutOfReach",
}

func TestAttacksFailWithOtherRuntimesToo(t *testing.T) {
	if os.Getenv(runtimeVariable) != "" {
		return // this is that run
	}
	testenv.Requires(t, testenv.NoRace, testenv.UserNamespaces, testenv.Landlock(1))
	for _, other := range []struct {
		runtime string
		attacks []string
	}{{"bwrap", withBubblewrap}, {"crun", withContainers}} {
		t.Run(other.runtime, func(t *testing.T) {
			testenv.Requires(t, testenv.Program(other.runtime))
			attackWith(t, other.runtime, other.attacks)
		})
	}
}

// attackWith tries attacks on a runtime.
func attackWith(t *testing.T, runtime string, attacks []string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c := exec.Command(self, "-test.v", "-test.run", "^("+strings.Join(attacks, "|")+")$")
	c.Env = append(os.Environ(), runtimeVariable+"="+runtime)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range attacks {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") && !strings.Contains(string(out), "--- SKIP: "+name+" ") {
			t.Errorf("%s did not run", name)
		}
	}
}
