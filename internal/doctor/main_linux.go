package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Exit statuses of Main.
const (
	exitFull    = 0
	exitNotFull = 1   // the default policy is not enforced in full
	exitOwn     = 125 // an error of Bailey's own
)

// Request is what the flags of "bailey doctor" ask for.
type Request struct {
	JSON bool
	Fix  bool // mend what can be mended
	Yes  bool // without asking
}

// ParseArgs reads the flags.
func ParseArgs(args []string) (r Request, err error) {
	for _, a := range args {
		switch a {
		case "--json":
			r.JSON = true
		case "--fix":
			r.Fix = true
		case "--yes":
			r.Yes = true
		default:
			return r, errors.New("doctor: unknown argument " + plain.Text(a))
		}
	}
	if r.JSON && r.Fix {
		return r, errors.New("doctor: --json and --fix exclude each other")
	}
	return r, nil
}

// Main examines the machine and says what it found. It returns the exit status.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	req, err := ParseArgs(args)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "bailey: "+err.Error())
		return exitOwn
	}
	report, err := diagnose(req, stdin, stdout)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "bailey: "+plain.Text(err.Error()))
		return exitOwn
	}
	text, err := report.Text(), error(nil)
	if req.JSON {
		text, err = report.JSON()
	}
	if err == nil {
		_, err = io.WriteString(stdout, text)
	}
	switch {
	case err != nil:
		return exitOwn
	case report.Full:
		return exitFull
	}
	return exitNotFull
}

// diagnose examines the machine, and once more if something was mended.
func diagnose(req Request, stdin io.Reader, stdout io.Writer) (*Report, error) {
	if !req.Fix {
		return Examine(), nil
	}
	who, err := caller(os.Geteuid(), os.Getenv)
	if err != nil {
		return nil, err
	}
	report, err := who.examine()
	if err != nil {
		return nil, err
	}
	if who != nil {
		_, _ = fmt.Fprintln(stdout, plain.Text("Examined for "+who.Username+", who called sudo."))
	}
	changed, err := mend(report, req, stdin, stdout)
	if err != nil || !changed {
		return report, err
	}
	return who.examine()
}

// mend applies what can be applied, after asking about each.
func mend(report *Report, req Request, stdin io.Reader, stdout io.Writer) (changed bool, err error) {
	s := &System{Bailey: host.Beside("bailey"), Run: func(argv ...string) error { return exec.Command(argv[0], argv[1:]...).Run() }}
	remedies := s.Remedies(report)
	if len(remedies) == 0 && report.Full {
		return false, nil
	}
	if len(remedies) == 0 {
		_, err = fmt.Fprintln(stdout, "There is nothing that doctor could mend by itself; what follows says what else can be done.")
		return false, err
	}
	if os.Geteuid() != 0 {
		return false, errors.New("doctor --fix changes settings of the machine: sudo " + host.Beside("bailey") + " doctor --fix")
	}
	answers := bufio.NewReader(stdin)
	for _, r := range remedies {
		if !req.Yes && !confirm(r, answers, stdout) {
			continue
		}
		if err := s.Apply(r); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// confirm shows a change and asks. Whatever is not a yes is a no.
func confirm(r Remedy, answers *bufio.Reader, stdout io.Writer) bool {
	text := "To do: " + plain.Text(r.Text) + "\n"
	for name, content := range r.Files {
		text += name + " would be:\n"
		for line := range strings.Lines(content) {
			text += "    " + plain.Text(strings.TrimSuffix(line, "\n")) + "\n"
		}
	}
	_, _ = io.WriteString(stdout, text+"Do it? [y/N] ")
	answer, err := answers.ReadString('\n')
	return (err == nil || err == io.EOF) && (answer == "y\n" || answer == "yes\n" || answer == "y")
}
