package users

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/listfile"
	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/textfile"
)

// ErrNoOperator means that a file of operators has no account of a name.
var ErrNoOperator = errors.New("there is no such account")

// ReadOperators reads a file of operators. A missing one has no accounts.
func ReadOperators(path string) (text string, err error) {
	data, err := textfile.Read(path, listfile.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(data), err
}

// SetOperator puts an account's line into a file of operators in place of a former one, or takes the account out where
// line is empty. Other lines stay as they are. A missing file is made, with mode 640. The file is the former one or the
// new one, whenever the machine dies, and a daemon reads it at its next request.
func SetOperator(path, name, line string) error {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return textfile.Plain(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	text, err := ReadOperators(path)
	if err != nil {
		return err
	}
	if _, _, err := ParseOperators(path, text); err != nil {
		return fmt.Errorf("nothing is changed, because the file has mistakes:\n%w", err)
	}
	fresh, found := replaceLine(text, name, line)
	if !found && line == "" {
		return fmt.Errorf("%q: %w in %s", name, ErrNoOperator, path)
	}
	info, missing := os.Stat(path)
	err = statefile.Replace(path, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		out.WriteString(fresh)
		return out.Flush()
	})
	if err != nil {
		return err
	}
	if missing != nil {
		return os.Chmod(path, 0o640)
	}
	owner := info.Sys().(*syscall.Stat_t) // always, on Linux
	return errors.Join(os.Chown(path, int(owner.Uid), int(owner.Gid)), os.Chmod(path, info.Mode().Perm()))
}

// replaceLine replaces the line of a name, or adds it at the end.
func replaceLine(text, name, line string) (fresh string, found bool) {
	var out strings.Builder
	for one := range strings.Lines(text) {
		if key, _, err := parseOperator(strings.TrimSpace(textfile.Trim(one))); err != nil || key != name {
			out.WriteString(strings.TrimSuffix(one, "\n") + "\n")
			continue
		}
		if !found && line != "" {
			out.WriteString(line + "\n")
		}
		found = true
	}
	if !found && line != "" {
		out.WriteString(line + "\n")
	}
	return out.String(), found
}
