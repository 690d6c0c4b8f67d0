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
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/textfile"
)

const (
	maxName     = 253 // bytes, as in RADIUS
	maxFile     = 16 << 20
	maxLine     = 4096
	maxProblems = 20 // most problems of a file that an error lists
)

// account is an account of the file: one line.
type account struct {
	hash hash
	accountLimits
}

// fileStamp identifies a version of the file: its device, inode, size and times. The zero value stands for no file.
type fileStamp struct {
	dev, inode     uint64
	size           int64
	modified, meta syscall.Timespec
}

func stampOf(info fs.FileInfo) fileStamp {
	st := info.Sys().(*syscall.Stat_t) // always, on Linux
	return fileStamp{dev: uint64(st.Dev), inode: st.Ino, size: st.Size, modified: st.Mtim, meta: st.Ctim}
}

// ownerOf returns the user ID of the file's owner.
func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// changed returns the time of the last change of the file or its permissions. Programs cannot set it, unlike the
// modification time.
func (s fileStamp) changed() time.Time { return time.Unix(s.meta.Unix()) }

// load reads a file of accounts. The stamp is that of the file that it read, also with an error; without a file it is
// zero.
func load(path string) (map[string]account, fileStamp, error) {
	// O_NONBLOCK: opening a pipe would block.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fileStamp{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fileStamp{}, err
	}
	seen := stampOf(info)
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, seen, fmt.Errorf("%s: is no regular file", path)
	case mode.Perm()&0o027 != 0:
		return nil, seen,
			fmt.Errorf("%s: has mode %#o: others may read it or the group may write it; chmod 640 %s", path, mode.Perm(), path)
	case ownerOf(info) != 0 && ownerOf(info) != os.Geteuid():
		return nil, seen,
			fmt.Errorf("%s: belongs to user %d, who could change the accounts: chown root %s", path, ownerOf(info), path)
	case info.Size() > maxFile:
		return nil, seen, fmt.Errorf("%s: has %d bytes: %d at most", path, info.Size(), maxFile)
	}
	accounts, err := parse(path, io.LimitReader(file, maxFile))
	return accounts, seen, err
}

// parse reads accounts; name is the file's, for errors. It reports all problems, up to maxProblems.
func parse(name string, r io.Reader) (map[string]account, error) {
	accounts := map[string]account{}
	var problems []error
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	n := 0
	for lines.Scan() && len(problems) < maxProblems {
		n++
		line := strings.TrimSpace(textfile.Trim(lines.Text()))
		if line == "" || line[0] == '#' {
			continue
		}
		user, acc, err := parseLine(line)
		if _, twice := accounts[user]; err == nil && twice {
			err = fmt.Errorf("account %q is there twice", user)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w", name, n, err))
			continue
		}
		accounts[user] = acc
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		problems = append(problems, fmt.Errorf("%s:%d: is longer than %d bytes", name, n+1, maxLine))
	} else if err != nil {
		problems = append(problems, fmt.Errorf("reading %s: %w", name, err))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return accounts, nil
}

// parseLine reads name:hash[:limits]. Errors never quote the hash: they go to logs.
func parseLine(line string) (string, account, error) {
	user, rest, hasHash := strings.Cut(line, ":")
	if !hasHash {
		return "", account{}, errors.New("must be name:hash or name:hash:limits")
	}
	if user == "" || len(user) > maxName || !utf8.ValidString(user) || strings.ContainsFunc(user, unicode.IsControl) {
		return "", account{}, fmt.Errorf("the name must be 1 to %d bytes of UTF-8 without control characters", maxName)
	}
	hashed, limits, hasLimits := strings.Cut(rest, ":")
	hash, err := parseHash(hashed)
	if err != nil {
		return "", account{}, fmt.Errorf("account %q: %w", user, err)
	}
	acc := account{hash: hash}
	if hasLimits {
		if acc.accountLimits, err = parseLimits(limits); err != nil {
			return "", account{}, fmt.Errorf("account %q: %w", user, err)
		}
	}
	return user, acc, nil
}
