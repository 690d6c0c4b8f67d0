package admin

import (
	"crypto/hmac"
	"net/http"
	"time"
)

// same compares secrets.
func same(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// loginBody is what the login page shows.
type loginBody struct{ Name, Next string }

func (p *paged) loginForm(w http.ResponseWriter, r *http.Request) {
	if p.atPage(r) != nil {
		http.Redirect(w, r, localPath(r.URL.Query().Get("next")), http.StatusSeeOther)
		return
	}
	p.show(w, http.StatusOK, "login", &view{Title: "Sign in", Body: loginBody{Next: localPath(r.URL.Query().Get("next"))}})
}

// login checks a name and password. Where a proxy logs people in, nobody can log in here.
func (p *paged) login(w http.ResponseWriter, r *http.Request) {
	if p.cfg.UserHeader != "" {
		p.failed(w, r, nil, refuse(http.StatusForbidden, "people log in at the proxy"))
		return
	}
	if err := r.ParseForm(); err != nil {
		p.failed(w, r, nil, bodyError(err))
		return
	}
	body := loginBody{r.PostForm.Get("name"), localPath(r.PostForm.Get("next"))}
	from := p.clientOf(r)
	if err := p.checkPassword(r.Context(), body.Name, r.PostForm.Get("password"), from); err != nil {
		p.show(w, statusOf(err), "login", &view{Title: "Sign in", Alert: err.Error(), Body: body})
		return
	}
	_, mark, known := p.operators.Find(body.Name)
	if !known {
		p.show(w, http.StatusUnauthorized, "login", &view{Title: "Sign in", Alert: errWrong.Error(), Body: body})
		return
	}
	who := person{Name: body.Name, from: from, way: "page"}
	if err := p.audited(who, "login", body.Name, nil, func() (string, error) { return "done", nil }); err != nil {
		p.show(w, statusOf(err), "login", &view{Title: "Sign in", Alert: err.Error(), Body: body})
		return
	}
	if old, err := r.Cookie(cookieName); err == nil {
		p.logins.end(old.Value)
	}
	p.counters.login.Add(1)
	p.setCookie(w, p.logins.begin(body.Name, mark, time.Now()), 0)
	http.Redirect(w, r, body.Next, http.StatusSeeOther)
}

func (p *paged) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
}

func (p *paged) logout(w http.ResponseWriter, r *http.Request, who *person) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		p.logins.end(cookie.Value)
	}
	_ = p.audited(*who, "logout", who.Name, nil, func() (string, error) { return "done", nil })
	p.setCookie(w, "", -1)
	w.Header().Set("Clear-Site-Data", `"cache"`) // "cookies" would be those of the whole domain
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
