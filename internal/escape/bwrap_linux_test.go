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

func TestAttacksFailWithBubblewrapToo(t *testing.T) {
	if os.Getenv(runtimeVariable) != "" {
		return // this is that run
	}
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("bwrap"))
	self, err := os.Executable()
	must(t, err)
	c := exec.Command(self, "-test.v", "-test.run", "^("+strings.Join(withBubblewrap, "|")+")$")
	c.Env = append(os.Environ(), runtimeVariable+"=bwrap")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range withBubblewrap {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") && !strings.Contains(string(out), "--- SKIP: "+name+" ") {
			t.Errorf("%s did not run", name)
		}
	}
}
