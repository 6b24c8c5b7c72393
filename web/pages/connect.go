package pages

import (
	"net/http"

	"github.com/a-h/templ"

	"pocketcoder/events"
	"pocketcoder/handlers"
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

// showConnect serves the page where a person confirms the code of "pocketcoder login".
func (p Pages) showConnect(r *http.Request, caller api.Caller) (templ.Component, error) {
	v := connectView{code: r.FormValue("code")}
	if r.Method == http.MethodPost {
		return p.connect(r, caller, v)
	}
	if v.code == "" {
		return connectPage(caller, v), nil
	}
	if err := p.API.Limit(caller.Key()); err != nil {
		return nil, err
	}
	l, err := p.API.Accounts.FindCodeLogin(r.Context(), v.code)
	if handlers.CodeOf(err) != "" {
		v.problem, err = err.Error(), nil
	} else if err == nil {
		v.found, v.client = true, l.Client
	}
	return connectPage(caller, v), err
}

func (p Pages) connect(r *http.Request, caller api.Caller, v connectView) (templ.Component, error) {
	err := p.API.ConfirmCode(r, caller, v.code)
	if problem := api.ProblemOf(err); err != nil && problem.Status < http.StatusInternalServerError {
		v.problem, err = site.ProblemText(problem), nil
	}
	v.done = err == nil && v.problem == ""
	return connectPage(caller, v), err
}
