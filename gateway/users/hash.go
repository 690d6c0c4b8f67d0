package users

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// Parameters of argon2id: the second recommendation of RFC 9106, 4, for systems with little memory.
const (
	hashPasses = 3
	memoryKiB  = 64 << 10
	lanes      = 4
	saltSize   = 16
	tagSize    = 32
)

// hashPrefix is the beginning of every hash in PHC string format: the algorithm and its parameters.
var hashPrefix = fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, memoryKiB, hashPasses, lanes)

// phc is the base64 of the PHC string format.
var phc = base64.RawStdEncoding.Strict()

// hash is a hashed password.
type hash struct{ salt, tag []byte }

// nobodyHash is the hash for names without an account. Its tag is random, so that no known password matches, but
// checking one takes the usual time.
var nobodyHash = hash{salt: random(saltSize), tag: random(tagSize)}

// Hash hashes a password for the file, with a random salt. It takes 64 MiB of memory and about 0.16 s of a core.
func Hash(password string) string {
	salt := random(saltSize)
	tag := argon2.IDKey([]byte(password), salt, hashPasses, memoryKiB, lanes, tagSize)
	return hashPrefix + phc.EncodeToString(salt) + "$" + phc.EncodeToString(tag)
}

// matches reports whether a password is the hashed one.
func (h hash) matches(password string) bool {
	tag := argon2.IDKey([]byte(password), h.salt, hashPasses, memoryKiB, lanes, uint32(len(h.tag)))
	return subtle.ConstantTimeCompare(tag, h.tag) == 1
}

// parseHash reads a hash in PHC string format. It refuses other parameters than those of hashPrefix: stronger ones
// would let a login use any amount of memory, weaker ones are insecure, and the time of a login would reveal that the
// account exists.
func parseHash(text string) (hash, error) {
	rest, isOurs := strings.CutPrefix(text, hashPrefix)
	if !isOurs {
		if strings.HasPrefix(text, "$argon2id$") {
			return hash{}, fmt.Errorf(
				"the hash has other parameters than %s…: make it anew with gatewayd hash-password", hashPrefix)
		}
		return hash{}, errors.New("the password must be an argon2id hash: make it with gatewayd hash-password")
	}
	saltText, tagText, _ := strings.Cut(rest, "$")
	salt, errSalt := phc.DecodeString(saltText)
	tag, errTag := phc.DecodeString(tagText)
	switch {
	case errSalt != nil || len(salt) < 8 || len(salt) > 64:
		return hash{}, errors.New("the hash's salt must be 8 to 64 bytes in base64 without padding: was the line cut?")
	case errTag != nil || len(tag) != tagSize:
		return hash{}, fmt.Errorf("the hash must end in %d bytes in base64 without padding: was the line cut?", tagSize)
	}
	return hash{salt, tag}, nil
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails: on an error crypto/rand ends the program
	return b
}
