package portal

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gateweigh/gateweigh/textfile"
)

// Page is the data of the templates. Fields that do not concern a page are empty. A form
// must send Token back as "token", and URL as "url" if it logs in.
type Page struct {
	T        *Texts       // all pages: the texts in the client's language, `.T.SignIn` and so on, as in `texts.en.toml`
	Title    string       // all pages: `portal.title`
	Style    template.CSS // all pages: `theme.css` and `style.css`
	Logo     string       // all pages: the URL of the folder's image `logo`; empty: there is none
	LogoDark string       // all pages: the URL of its image `logo-dark`, for the dark scheme
	// all pages: the languages to choose from; each has its texts, `.T.LangName` and so on, the link `.Href` to the page
	// in it, and `.Current`
	Languages []Choice
	// all pages: what the path in a form's `action` and in links to the portal's pages is followed by, so that they keep
	// the language that the person has chosen
	Query   string
	Heading string // all pages: the heading
	// all pages: something good or neutral: signed out; why the session before ended (time, which quota, silence,
	// operator)
	Note    string
	Alert   string // all pages: something that went wrong, as a wrong password
	Message string // all pages: RADIUS' Reply-Message
	Token   string // all pages: must be sent back by each form as `token`
	// all pages: the page that the client asked for, http or https; a login form sends it back as `url`.
	// `provider.html`: the OpenID provider's page
	URL     string
	URLHost string // all pages: its site

	// `login.html`: there is a login with name and password; the form posts `username` and `password` to `/login`
	Login bool
	// `login.html`: there is one by a voucher's code; the form posts `method=voucher` and `code` to `/login`
	Voucher   bool
	Code      string      // `login.html`: the code as typed before
	WrongCode bool        // `login.html`: the code was wrong
	Script    template.JS // `login.html`: puts the code of a QR code into the field `id="code"`; may be left out
	// `login.html`: OpenID providers; a form posts a button `provider` with `.Name` to `/login`: one of its own, which
	// also posts `method=oidc`, or that with name and password
	Providers    []ProviderButton
	ClickThrough bool // `login.html`: there is one by a click; the form posts `method=click` to `/login`
	// `login.html`: what the form of the click asks. Each is sent as its `.Name`, and shown with `.Label`, `.Value` as
	// typed before, `.Required`, `.Wrong`, and the input's `.Type`, `.Max` (characters) and `.Autocomplete`
	Fields []FieldOfPage
	// `login.html`: the version of the terms, which the form of the click sends as `accept`, from a checkbox if `.Box`
	Accept      string
	Box         bool         // `login.html`: the terms must be accepted by a checkbox of its own
	Accepted    bool         // `login.html`: the checkbox was checked before
	NotAccepted bool         // `login.html`: it must be, and was not
	Today       *TodayOfPage // `login.html`, `status.html`: what is left of a day; nil: nothing is limited by the day
	// `login.html`: the text of a box for the wish that the device need not log in again; empty: there is none. The
	// form sends `remember=1` where it is checked
	Remember  string
	Remembers bool     // `login.html`: the box was checked before
	Terms     []string // `login.html`: paragraphs of `portal.terms`
	User      string   // `login.html`: the name as typed before
	Wrong     bool     // `login.html`, `logout.html`: name or password, or what the form asks for, were wrong

	Status *Status // `status.html`, `logout.html`: the session
	Reload string  // `status.html`: its own URL
	// `status.html`, `logout.html`: another browser logged in, so the form, which posts to `/logout`, must also send
	// the user's name as `username`
	Confirm     bool
	ConfirmCode bool // `status.html`, `logout.html`: as `username` the form must send the voucher's code
	ConfirmRoom bool // `status.html`, `logout.html`: as `username` the form must send the room number

	Text string // `error.html`: what went wrong
}

//go:embed web
var builtIn embed.FS

// Template files; layout.html defines what the others share.
var (
	pageFiles   = []string{"login.html", "status.html", "logout.html", "provider.html", "error.html"}
	sharedFiles = []string{"layout.html", "theme.css", "style.css"}
)

// maxTemplate bounds a replaced file, bytes.
const maxTemplate = 1 << 20

// pages are the parsed templates.
type pages struct {
	templates map[string]*template.Template // by file name
	languages languages
	style     template.CSS
	images    images
	styleHash string // "sha256-…", which the content security policy allows
}

// readPages parses the built-in files, or those of the same name in dir, and tries them, so that mistakes show at
// start: the first one of each file, all together.
func readPages(dir string) (*pages, error) {
	if err := checkNames(dir); err != nil {
		return nil, err
	}
	languages, wrong := readLanguages(dir)
	if wrong != nil { // the pages cannot be tried without
		return nil, wrong
	}
	style, badStyle := readStyle(dir)
	images, badImage := readImages(dir)
	mistakes := []error{badStyle, badImage}
	// The style is embedded in the page, so that one request shows the whole page. Its hash
	// lets the content security policy refuse any other style.
	sum := sha256.Sum256([]byte(style))
	p := &pages{
		templates: map[string]*template.Template{}, languages: languages, style: template.CSS(style), images: images,
		styleHash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
	}
	layout, err := readPart(dir, "layout.html")
	if err != nil {
		return nil, errors.Join(append(mistakes, err)...)
	}
	for _, name := range pageFiles {
		err := p.parsePage(dir, name, layout)
		same := func(other error) bool { return err != nil && other != nil && other.Error() == err.Error() }
		if !slices.ContainsFunc(mistakes, same) { // one in the layout is in every page
			mistakes = append(mistakes, err)
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return p, nil
}

// ofPortal says of each of several errors that it is the portal's.
func ofPortal(err error) error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("portal: %w", err)
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, fmt.Errorf("portal: %w", e))
	}
	return errors.Join(all...)
}

// parsePage parses a page's template and tries it in each of its states. Each page has its own copy of the layout:
// html/template escapes parts by where they are used, and an error in one page does not affect the others.
func (p *pages) parsePage(dir, name, layout string) error {
	text, err := readPart(dir, name)
	if err != nil {
		return err
	}
	t := template.New(name)
	if _, err := t.New("layout.html").Parse(layout); err != nil {
		return templateError(dir, "layout.html", err)
	}
	if _, err := t.Parse(text); err != nil {
		return templateError(dir, name, err)
	}
	p.templates[name] = t
	trial := &Portal{pages: p}
	for _, s := range states {
		if s.page != name {
			continue
		}
		if err := t.Execute(io.Discard, trial.statePage(s, &http.Request{URL: &url.URL{}})); err != nil {
			return templateError(dir, name, err)
		}
	}
	return nil
}

// checkNames refuses a folder without any known file, or with a page under an unknown
// name.
func checkNames(dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the portal's templates: %w", textfile.Plain(err))
	}
	known := append(slices.Concat(pageFiles, sharedFiles), "texts.LANGUAGE.toml")
	found := 0
	for _, e := range entries {
		ext := strings.ToLower(filepath.Ext(e.Name()))
		switch {
		case slices.Contains(known, e.Name()) || languageOf(e.Name()) != "" || imageKinds[ext] != "":
			found++
		case ext == ".html" || ext == ".css" || ext == ".toml":
			return fmt.Errorf(
				"%s is none of the portal's templates: %s", filepath.Join(dir, e.Name()), strings.Join(known, ", "))
		}
	}
	if found == 0 {
		return fmt.Errorf("%s has none of the portal's templates: %s", dir, strings.Join(known, ", "))
	}
	return nil
}

// readPart reads a file from dir, or the built-in one when it is not there.
func readPart(dir, name string) (string, error) {
	if dir != "" {
		text, err := textfile.Read(filepath.Join(dir, name), maxTemplate)
		if err == nil {
			return string(text), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("reading the portal's templates: %w", err)
		}
	}
	text, err := builtIn.ReadFile("web/" + name)
	if err != nil {
		return "", fmt.Errorf("reading the built-in templates: %w", err)
	}
	return string(text), nil
}

// page returns the common data of a page for a client that requested link.
func (p *Portal) page(r *http.Request, link string) *Page {
	page := p.pageIn(p.textsOf(r), link)
	if t := p.chosen(r); t != nil {
		page.Query = "?" + langKey + "=" + t.Lang
	}
	return page
}

// pageIn returns the common data of a page in a language that the browser prefers.
func (p *Portal) pageIn(t *Texts, link string) *Page {
	page := &Page{T: t, Title: p.cfg.Title, Style: p.pages.style, URL: link}
	page.Logo, page.LogoDark = p.pages.images.url("logo"), p.pages.images.url("logo-dark")
	page.Languages = p.pages.languages.menu(t, link)
	if u, err := url.Parse(link); err == nil {
		page.URLHost = u.Host
	}
	return page
}

// buffers are reused to render pages.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// render sends a page. It renders the whole page before it sends the first byte, so that
// clients get a complete page or an error.
func (p *Portal) render(w http.ResponseWriter, status int, name string, page *Page) {
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	if err := p.pages.templates[name].Execute(b, page); err != nil {
		p.log.Error("making a portal page", "template", name, "error", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	send(w, status, page.T, b.Bytes())
}

// send sends a rendered page.
func send(w http.ResponseWriter, status int, t *Texts, page []byte) {
	h := w.Header()
	h["Content-Type"], h["Content-Language"], h["Vary"] = htmlValue, []string{t.Lang}, varyValue
	h["Content-Length"] = []string{strconv.Itoa(len(page))}
	w.WriteHeader(status)
	w.Write(page)
}

// Header values of pages, as net/http keeps them.
var (
	htmlValue = []string{"text/html; charset=utf-8"}
	varyValue = []string{"Accept-Language"}
)

// formPages are the login pages for clients' first requests, by language. Only the token
// differs between clients, so each page is rendered once and kept as the parts between
// the tokens.
type formPages map[*Texts][][]byte

// makeFormPages renders the pages with New's configuration. It leaves out a language
// whose template does more with the token than print it.
func (p *Portal) makeFormPages() formPages {
	// Two values with a token's length and every character that a template could treat
	// specially. Pages rendered with either must be equal except for the token.
	const one, two = "0-_aZ9-_Zz-_-_-_tokenO", "9_-zA0_-aA_-_-_-tokenT"
	made := formPages{}
	for _, t := range p.pages.languages.all {
		parts := [2][][]byte{}
		for i, token := range []string{one, two} {
			page := p.loginPage(p.pageIn(t, ""), token)
			var b bytes.Buffer
			if err := p.pages.templates["login.html"].Execute(&b, page); err != nil {
				continue // render fails again for a request, and is logged there
			}
			parts[i] = bytes.Split(b.Bytes(), []byte(token))
		}
		if len(parts[0]) > 1 && slices.EqualFunc(parts[0], parts[1], bytes.Equal) {
			made[t] = parts[0]
		}
	}
	return made
}

// sendForm sends the login page with empty fields.
func (p *Portal) sendForm(w http.ResponseWriter, t *Texts, token string) {
	parts, ok := p.forms[t]
	if !ok {
		p.render(w, http.StatusOK, "login.html", p.loginPage(p.pageIn(t, ""), token))
		return
	}
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	for i, part := range parts {
		if i > 0 {
			b.WriteString(token)
		}
		b.Write(part)
	}
	send(w, http.StatusOK, t, b.Bytes())
}
