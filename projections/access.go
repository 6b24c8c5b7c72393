package projections

// ProjectsOf returns SQL for the ids of the projects to which an account has access, or, if works is true, in which it
// may have chats. user is SQL for the id of the account. Package handlers/project decides by the same rules from the
// log.
func ProjectsOf(user string, works bool) string {
	roles := "<> ''"
	if works {
		roles = "IN ('member', 'owner')"
	}
	return `SELECT p.record FROM config AS p WHERE p.collection = 'projects' AND NOT p.removed AND coalesce((` +
		`SELECT m.fields ->> '$.role' FROM config AS m WHERE m.collection = 'project_members' AND NOT m.removed ` +
		`AND m.fields ->> '$.user' = ` + user + ` AND m.fields ->> '$.project' = p.record), ` +
		`p.fields ->> '$.everyone', '') ` + roles
}
