package configuration

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/proposal"
)

func TestAProcedureBecomesASkill(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for name, want := range map[string]string{
		"Release notes": "release-notes", "  a--B/../c ": "a-b-c", "…": "", "x1": "x1",
	} {
		is.Equal(proposal.SkillName(name), want)
	}
	const text = "---\nname: other\n---\n# How to release\n\nTag it.\n"
	is.Equal(proposal.Description(proposal.Stored{Name: "n", Content: text}), "How to release")
	is.Equal(skill("release", procedure{Description: "say \"so\"\n---\n", Content: text}),
		"---\nname: release\ndescription: \"say \\\"so\\\"\\n---\\n\"\n---\n\n# How to release\n\nTag it.\n")
}

func TestAChangedSkillIsReadWithItsFrontMatter(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p, err := readSkill("---\r\nname: deploy\r\ndescription: \"How: to\"\r\n---\r\n\r\n# Deploy\r\n")
	is.NoErr(err)
	is.Equal(p, procedure{Name: "deploy", Description: "How: to", Content: "# Deploy\n"})
	for _, file := range []string{
		"---\nname: [a\n---\ntext\n", "---\nname: a\n", "---\nname: a\n---\n\n", "---\n- a\n---\ntext\n",
	} {
		_, err := readSkill(file)
		is.True(err != nil)
	}
}
