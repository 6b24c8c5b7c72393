package filter

import "strings"

// auth compiles a property of the account that makes the request, such as @request.auth.id. It is empty for a guest.
func (s *Scope) auth(segments []string) (operand, error) {
	a := s.Req.Auth
	if len(segments) != 2 || segments[0] != "auth" {
		return operand{}, s.invalid("unknown_field", "unknown field %q", "@request."+strings.Join(segments, "."))
	}
	if a == nil {
		a = &Auth{}
	}
	c, _ := s.Cat.Get(a.Collection)
	known := map[string]string{
		"id": a.ID, "email": a.Email, "name": a.Name, "role": a.Role, "collectionName": a.Collection, "collectionId": c.ID,
	}
	value, ok := known[segments[1]]
	switch {
	case !ok:
		return operand{}, s.invalid("unknown_field", "unknown field %q", "@request."+strings.Join(segments, "."))
	case s.Req.Auth == nil:
		o := s.literal(nil)
		o.guest = true
		return o, nil
	}
	return s.literal(value), nil
}
