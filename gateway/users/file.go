package users

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/listfile"
)

const maxName = 253 // bytes, as in RADIUS

// kind is what the users' file says of itself.
var kind = listfile.Kind{
	Stays: "local accounts stay as they were read before", Read: "local accounts read", Unit: "accounts", One: "account",
	Matter: "the accounts", Refused: 0o027, Remedy: "others may read it or the group may write it; chmod 640",
}

// account is an account of the file: one line.
type account struct {
	hash hash // without tag: no password is right
	accountLimits
	Operator // of an account of operators
}

// parse reads accounts; name is the file's, for errors.
func parse(name string, r io.Reader) (map[string]account, error) {
	return listfile.Parse(name, kind, r, parseLine)
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
