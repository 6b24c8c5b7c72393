// Package protected lists the names of files and folders that programs obey as configuration. A command that writes
// one of them decides what a later program does outside the sandbox.
//
// The policy asks a person before OpenCode or a command writes any of these names, in any folder. The sandbox keeps
// commands from changing Project and Instructions in the top folder of the workspace, and Home where the workspace is a
// home directory. It moves new ones out of the workspace. The kernel compares names byte by byte, and the policy
// ignores their case.
//
// The package holds data only.
package protected

import "strings"

// Project are the names that git, editors, shell prompts, package managers and other agents obey in the folder of a
// project without being asked to run something of it. A Makefile is not among them.
var Project = strings.Fields(`
	.git .gitattributes .gitmodules .gitconfig .hg .jj .githooks .husky .pre-commit-config.yaml lefthook.yml .lefthook.yml
	.opencode opencode.json opencode.jsonc .agents .pocketcoder .mcp.json mcp.json .claude .claude.json .codex .gemini .cursor .windsurf .roo .continue
	.aider.conf.yml .copilot .amazonq .kiro .zed .vscode .idea .fleet .devcontainer .devcontainer.json .envrc .mise.toml mise.toml .tool-versions
	.exrc .nvimrc .nvim.lua .gdbinit .lldbinit .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs bunfig.toml sitecustomize.py usercustomize.py
`)

// Instructions are texts for agents. No program executes them. A person may let OpenCode write them.
var Instructions = strings.Fields(`AGENTS.md CLAUDE.md GEMINI.md .cursorrules .windsurfrules .clinerules`)

// Home are the names that programs obey in a home directory.
var Home = strings.Fields(`
	.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash_history .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc
	.tcshrc .login .logout .fishrc config.fish .inputrc .xprofile .xinitrc .xsession .xsessionrc .pam_environment .hgrc .vimrc .emacs .emacs.d
	.screenrc .tmux.conf .wgetrc .curlrc .ripgreprc .ackrc .editrc .psqlrc .sqliterc .pnpmrc .pypirc pip.conf .condarc .netrc _netrc .ssh .gnupg
	.aws .azure .kube .docker authorized_keys .pythonrc .pdbrc .irbrc .pryrc .perldb .rprofile .mailcap .lesskey .config .local
`)

// Asked are protected by the policy alone. Ordinary commands create some of them: environment files, caches and working
// copies. Others are obeyed by a server after a person has pushed them. git~1 is a name of .git on some file systems.
var Asked = strings.Fields(`.env .direnv .svn git~1 .gitlab-ci.yml .circleci`)
