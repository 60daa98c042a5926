package escape

import (
	"os"
	"os/exec"
	"path/filepath"
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
// in a container, or which the container itself is. What containers of every kind are
// asked in an ordinary run comes first.
var (
	inShort = []string{
		"TestKernelInterfacesAreClosed", "TestNoNewNamespaces", "TestMountsAreNotChanged", "TestFilesAreNotOpenedByHandle", "TestNoNodeAndNoOwnersProgramIsLeft",
		"TestAbstractSocketsOfTheHostAreOutOfReach", "TestFileCapabilitiesGainNothing", "TestGrantedDirectoryIsWritten",
	}
	withContainers = append([]string{
		"TestProtectedNameDoesNotComeIntoBeing", "TestProtectedNameDoesNotComeIntoBeingWithReadPatterns",
		"TestDeniedPatternIsNotRacedAround", "TestFileOfADeniedPatternIsNotRemovedOrMarked", "TestNameOfADeniedPatternDoesNotComeIntoBeing", "TestBrokerDoesNotLendItsRights",
		"TestOwnSocketIsReached", "TestArgumentsThatChangeAreNotExecuted", "TestDeniedPathIsNotRead", "TestDeviceNodesAreNeitherMadeNorOpened",
		"TestProcessesOutsideCannotBeInspected", "TestMachineIsNotConfigured", "TestPathnameSocketsOfTheHostAreOutOfReach",
	}, inShort...)
)

// withContainersAtLength are the attacks that every container is tried with in a long run.
var withContainersAtLength = []string{
	"TestCallsOf32BitProgramsAreRefused", "TestSetuidProgramGainsNothing", "TestNoSetuidProgramIsLeftBehind", "TestHostIsNotReachedByAddress",
	"TestSharedDirectoriesOfTheHostAreOutOfReach", "TestRootOnlyFilesOfTheSystemAreNotRead", "TestSignalsDoNotReachTheHost", "TestPathnameSocketsOfTheHostAreOutOfReach",
	"TestPolicyOfTheRepositoryGrantsNothing", "TestPolicyWrittenInsideGrantsNothingNextTime", "TestLinkInAPolicyIsNotFollowedElsewhere", "TestDenialThroughALinkHoldsNextTime",
	"TestRelativeDenialHoldsWhereverTheCommandStarts", "TestProtectedFileIsNotWritten", "TestBaileysOwnFilesAreNotWritten", "TestSecretsOfTheHomeAreNotRead",
	"TestDeniedPathIsNotRead", "TestNothingIsWrittenOutsideTheGrant", "TestSystemFilesAreNotWritten",
}

// withBrokersAtLength are those for the containers that have a broker.
var withBrokersAtLength = []string{
	"TestProgramOfADeniedPatternIsNotMapped", "TestLinkInTheWayToAProtectedNameIsNotMade", "TestProtectedNameBehindALinkOfTheHostDoesNotComeIntoBeing",
	"TestProtectedNameIsNotRacedIn", "TestFileOfADeniedPatternIsNotRead", "TestFileOfADeniedPatternIsNotWritten", "TestSocketOfTheHostInTheProjectIsNotReached",
	"TestNoOtherSocketGetsTheNameOfAnAllowedOne", "TestAllowedSocketMayBeMadeAnew", "TestDeniedCommandIsNotRun", "TestAnyThreadCanExecute",
	"TestOtherSocketFamiliesDoNotExist", "TestRenamedParentStaysProtected", "TestExchangedPathStaysProtected", "TestHardLinkMadeBeforeIsRefused",
	"TestProjectBecomesNoRepositoryOfTheCommand",
}

// withGates are those that ask the network gate. An engine is not in the world in which
// they are made, and gVisor has a gate at a socket only.
var withGates = []string{
	"TestNoPacketLeavesByAddress", "TestDeniedNameReachesNoNameServer", "TestEgressSocketLetsOutWhatIsGrantedOnly", "TestWayToTheGateCannotBeChanged",
	"TestOtherFamiliesDoNotExistBesideAGate", "TestWildcardCarriesQuestionsForAddressesOnly", "TestUnixSocketsOfTheHostAreOutOfReachBesideAGate",
	"TestGrantedNameLeadsToNoInsider", "TestNameThatChangesItsAddressLeadsToNoInsider", "TestTrickedNameLeadsNowhere",
	"TestOtherMethodsPathsAndPortsAreNotGranted", "TestNoRequestHidesBehindAnother", "TestOneConnectionLeadsToOneHost", "TestHTTP2ConnectionServesNoOtherHost",
	"TestCredentialReachesItsHostOnly",
}

// The attacks that are not tried where they would succeed without reaching anything of the
// host are those on devices, processes and sockets that are gVisor's own.
func TestAttacksFailWithOtherRuntimesToo(t *testing.T) {
	if os.Getenv(runtimeVariable) != "" {
		return // this is that run
	}
	testenv.Requires(t, testenv.NoRace, testenv.UserNamespaces, testenv.Landlock(1))
	for _, other := range []struct {
		runtime, program string
		attacks          []string
		atLength         [][]string
	}{
		{"bwrap", "bwrap", withBubblewrap, nil},
		{"crun", "crun", append(withGates[:4:4], withContainers...), [][]string{withContainersAtLength, withBrokersAtLength, withGates}},
		{"runc", "runc", inShort, [][]string{withContainers, withContainersAtLength, withBrokersAtLength, withGates}},
		{"gvisor", "runsc", inShort[:4], [][]string{inShort, withContainersAtLength, {"TestEgressSocketLetsOutWhatIsGrantedOnly", "TestX32CallsDoNotExist"}}},
		{"docker", "dockerd", append(inShort[:4:4], "TestArgumentsThatChangeAreNotExecuted"), [][]string{withContainers, withContainersAtLength, withBrokersAtLength}},
	} {
		t.Run(other.runtime, func(t *testing.T) {
			testenv.Requires(t, testenv.Program(other.program))
			if other.runtime == "docker" {
				t.Setenv("DOCKER_HOST", testenv.Dockerd(t))
			}
			attacks := other.attacks
			for _, more := range other.atLength[:testenv.Count(0, len(other.atLength))] {
				attacks = append(attacks[:len(attacks):len(attacks)], more...)
			}
			attackWith(t, other.runtime, attacks)
		})
	}
}

// attackWith tries attacks on a runtime.
func attackWith(t *testing.T, runtime string, attacks []string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c := exec.Command(self, "-test.v", "-test.run", "^("+strings.Join(attacks, "|")+")$")
	// Each attack as often as in an ordinary run: it is the runtimes that are many.
	c.Env = append(os.Environ(), "BAILEY_LONG=", runtimeVariable+"="+runtime, testenv.BinaryDirVariable+"="+filepath.Dir(testenv.Binary(t, "bailey")))
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
