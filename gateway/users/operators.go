// Accounts of those who look after the gateway, at its admin page.
//
//	ann:$argon2id$v=19$m=65536,t=3,p=4$c2FsdA…$aGFzaA…:admin
//	bob:$argon2id$v=19$…:read-only,whois
//	backup:$sha256$aGFzaA…:read-only
//	carol:proxy:admin
//
// The third field is the role. A hash that begins with $sha256$ is that of a token of 32 random bytes: against guessing
// those need no slow hash. In place of a hash, "proxy" means that a trusted proxy alone logs the account in.

package users

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gateweigh/gateweigh/gateway/listfile"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Role is what an operator may do.
type Role string

const (
	Admin    Role = "admin"     // everything
	ReadOnly Role = "read-only" // look, and change nothing
)

// ProxyOnly is in place of the hash of an account that a proxy logs in.
const ProxyOnly = "proxy"

// tokenPrefix begins the hash of a token, and TokenPrefix a token, so that scanners for secrets know it.
const (
	tokenPrefix = "$sha256$"
	TokenPrefix = "gwd_"
)

// Operator is what an account of an operator may do.
type Operator struct {
	Role  Role
	Whois bool   // may ask who used an address
	token string // hash of its token in hexadecimal; empty: it has none
}

// Changes reports whether the operator may change something.
func (o Operator) Changes() bool { return o.Role == Admin }

// operatorsKind is what the file of operators says of itself.
var operatorsKind = listfile.Kind{
	Stays: "accounts of the admin page stay as they were read before", Read: "accounts of the admin page read",
	Unit: "accounts", One: "account", Matter: "who may log in", Refused: 0o027,
	Remedy: "others may read it or the group may write it; chmod 640",
}

// Operators are the accounts of a file of operators. Its methods may be called from several goroutines.
type Operators struct{ accounts *Accounts }

// OpenOperators reads a file of operators. Errors and later changes are as with Open.
func OpenOperators(path string, log *slog.Logger) (*Operators, error) {
	accounts, err := openFile(path, operatorsKind, log, parseOperator)
	if err != nil {
		return nil, err
	}
	return &Operators{accounts}, nil
}

// Authenticate checks a name and password. Errors are those of Accounts.Authenticate.
func (o *Operators) Authenticate(ctx context.Context, credentials session.Credentials) error {
	_, err := o.accounts.Authenticate(ctx, credentials)
	return err
}

// Find returns what an account may do, and a mark of its secret and role: after a change of either it is another one.
func (o *Operators) Find(name string) (operator Operator, mark string, known bool) {
	acc, known := o.accounts.file.Entries()[name]
	if !known {
		return Operator{}, "", false
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %+v", name, acc.hash.salt, acc.hash.tag, acc.Operator)
	return acc.Operator, hex.EncodeToString(h.Sum(nil)[:16]), true
}

// ByProxy reports whether a trusted proxy logs an account in: nothing else does.
func (o *Operators) ByProxy(name string) bool {
	acc, known := o.accounts.file.Entries()[name]
	return known && acc.token == "" && acc.hash.tag == nil
}

// OfToken returns the account of a token; "": there is none.
func (o *Operators) OfToken(token string) string {
	sum := hexSum(token)
	for name, acc := range o.accounts.file.Entries() {
		if acc.token != "" && acc.token == sum { // a hash of 256 random bits: how long the comparison takes tells nothing
			return name
		}
	}
	return ""
}

// State returns the state of the accounts. It reads the file if it has changed.
func (o *Operators) State() State { return o.accounts.State() }

// Follow reads the file whenever it has changed, until ctx ends.
func (o *Operators) Follow(ctx context.Context) error { return o.accounts.Follow(ctx) }

// NewToken returns a token and the hash of it for the file.
func NewToken() (token, hashed string) {
	token = TokenPrefix + base64.RawURLEncoding.EncodeToString(random(32))
	sum := sha256.Sum256([]byte(token))
	return token, tokenPrefix + phc.EncodeToString(sum[:])
}

func hexSum(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Line is the line of an operator in the file. secret is a password's hash, a token's, or ProxyOnly.
func (o Operator) Line(name, secret string) (string, error) {
	role := string(o.Role)
	if o.Whois && o.Role == ReadOnly {
		role += ",whois"
	}
	line := name + ":" + secret + ":" + role
	_, _, err := parseOperator(line)
	return line, err
}

// ParseOperators reads the lines of a file of operators, and returns the accounts and how each logs in: "password",
// "token" or "proxy". name is the file's, for errors.
func ParseOperators(name, text string) (map[string]Operator, map[string]string, error) {
	entries, err := listfile.Parse(name, operatorsKind, strings.NewReader(text), parseOperator)
	if err != nil {
		return nil, nil, err
	}
	all, ways := map[string]Operator{}, map[string]string{}
	for name, acc := range entries {
		all[name], ways[name] = acc.Operator, "proxy"
		if acc.token != "" {
			ways[name] = "token"
		} else if acc.hash.tag != nil {
			ways[name] = "password"
		}
	}
	return all, ways, nil
}

// parseOperator reads name:hash:role. Errors never quote the hash: they go to logs.
func parseOperator(line string) (string, account, error) {
	fields := strings.Split(line, ":")
	if len(fields) != 3 {
		return "", account{}, errors.New("must be name:hash:role")
	}
	name, secret := fields[0], fields[1]
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) ||
		strings.TrimSpace(name) != name || name[0] == '#' {
		return "", account{}, fmt.Errorf("the name must be 1 to %d bytes of UTF-8 without control characters", maxName)
	}
	var acc account
	var err error
	if acc.Operator, err = parseRole(fields[2]); err != nil {
		return "", account{}, fmt.Errorf("account %q: %w", name, err)
	}
	if sum, isToken := strings.CutPrefix(secret, tokenPrefix); isToken {
		raw, err := phc.DecodeString(sum)
		if err != nil || len(raw) != sha256.Size {
			return "", account{}, fmt.Errorf("account %q: the token's hash must be %d bytes in base64 without padding: make "+
				"another with gatewayd admin token", name, sha256.Size)
		}
		acc.token = hex.EncodeToString(raw)
	} else if secret != ProxyOnly {
		if acc.hash, err = parseHash(secret); err != nil {
			return "", account{}, fmt.Errorf("account %q: %w", name, err)
		}
	}
	return name, acc, nil
}

// parseRole reads "admin", "read-only" or "read-only,whois".
func parseRole(text string) (o Operator, err error) {
	role, more, several := strings.Cut(text, ",")
	o = Operator{Role: Role(role), Whois: role == string(Admin) || more == "whois"}
	if o.Role != Admin && o.Role != ReadOnly || several && (more != "whois" || o.Role == Admin) {
		return o, fmt.Errorf("the role must be %s, %s or %s,whois, not %q", Admin, ReadOnly, ReadOnly, text)
	}
	return o, nil
}
