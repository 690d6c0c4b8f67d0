package client

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// uamPortal logs in through CoovaChilli's universal access method, as the script of a portal page does, with a CHAP
// response (RFC 1994), so that RADIUS gets a CHAP-Password. CoovaChilli answers every request by a redirect to the
// portal page, whose query tells the outcome. The page itself is not needed. All builds of CoovaChilli answer these
// paths:
//
//	GET /prelogin               -> ?res=notyet&challenge=HEX
//	GET /logon?username&response -> ?res=success or res=failed&reason=…
//	GET /status                 -> ?res=already or res=notyet
//	GET /logoff                 -> ?res=logoff
type uamPortal struct{ portalClient }

func (u *uamPortal) login(ctx context.Context) error {
	answer, err := u.ask(ctx, "/prelogin")
	if err != nil {
		return err
	}
	if answer.Get("res") == "already" {
		return nil
	}
	response, err := uamResponse(answer.Get("challenge"), u.adm.Secret, u.adm.Password)
	if err != nil {
		return err
	}
	query := url.Values{"username": {u.user()}, "response": {response}}
	answer, err = u.ask(ctx, "/logon?"+query.Encode())
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("logging on as %q: %w: it closed the connection, as when RADIUS rejects the user",
			u.user(), errRefused)
	}
	if err != nil {
		return err
	}
	if answer.Get("res") == "failed" {
		return fmt.Errorf("logging on as %q: %w: %s %s", u.user(), errRefused, answer.Get("reason"), answer.Get("reply"))
	}
	return nil
}

func (u *uamPortal) status(ctx context.Context) (bool, error) {
	answer, err := u.ask(ctx, "/status")
	if err != nil {
		return false, err
	}
	res := answer.Get("res")
	if res != "already" && res != "notyet" {
		return false, fmt.Errorf("the portal's status is %q, want already or notyet", res)
	}
	return res == "already", nil
}

func (u *uamPortal) logout(ctx context.Context) error {
	_, err := u.ask(ctx, "/logoff")
	return err
}

// ask requests one path of the portal and returns the query of the redirect that it answers with.
func (u *uamPortal) ask(ctx context.Context, path string) (url.Values, error) {
	verb, _, _ := strings.Cut(path, "?")
	// get also reads the body: the portal has a process for each request, which ends only then.
	page, err := u.get(ctx, "http://"+u.adm.Portal+path, "text/html")
	if err != nil {
		return nil, err
	}
	to, err := page.location()
	if err != nil {
		return nil, fmt.Errorf("%s answered %s without a redirect: %w", verb, page.text(), err)
	}
	return to.Query(), nil
}

// uamResponse returns the CHAP response to a UAM challenge, in hexadecimal. The challenge is first hashed together with
// the secret that portal page and gateway share, so that a page without the secret cannot log anybody in.
func uamResponse(challenge, secret, password string) (string, error) {
	raw, err := hex.DecodeString(challenge)
	if err != nil || len(raw) == 0 {
		return "", fmt.Errorf("the portal's challenge %q is not hexadecimal", challenge)
	}
	mixed := md5.Sum(append(raw, secret...))
	// RFC 1994, section 4.1: identifier (zero here), secret, challenge value.
	chap := append(append([]byte{0}, password...), mixed[:]...)
	sum := md5.Sum(chap)
	return hex.EncodeToString(sum[:]), nil
}
