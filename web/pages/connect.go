package pages

import (
	"net/http"

	"github.com/a-h/templ"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

const connectPath = api.ConnectPath

// connectView holds what a person sees before a program may act for the account.
type connectView struct {
	code    string
	client  events.Client // that has begun the login
	found   bool
	done    bool
	problem string
}

// showConnect serves the page where a person types the code that "pocketcoder login" shows, and then confirms it. It
// ignores a code in a link: the sender of the link would know the code, and get the token.
func (p Pages) showConnect(r *http.Request, caller api.Caller) (templ.Component, error) {
	if r.Method != http.MethodPost {
		return connectPage(caller, connectView{}), nil
	}
	v, err := connectView{code: r.PostFormValue("code")}, error(nil)
	if r.PostFormValue("confirm") != "" {
		err = p.API.ConfirmCode(r, caller, v.code)
		v.done = err == nil
	} else if err = p.API.Limit(caller.Key()); err == nil {
		var l account.CodeLogin
		l, err = p.API.Accounts.FindCodeLogin(r.Context(), v.code)
		v.found, v.client = err == nil, l.Client
	}
	if problem := api.ProblemOf(err); err != nil && problem.Status < http.StatusInternalServerError {
		v.problem, err = site.ProblemText(problem), nil
	}
	return connectPage(caller, v), err
}
