package demo

// Texts of the guided tour. YOURS stands for the person's message.
const (
	textHello = "Hello! I am the **demo model** of PocketCoder. There is no AI behind me: I follow a small script, so that " +
		"you can see how everything works before you connect a real model. (You wrote: YOURS.)\n\n" +
		"PocketCoder is a coding assistant you host yourself. It **asks before it acts**, runs commands in a sandbox, " +
		"and keeps every step in a log you can replay.\n\n" +
		"Let me start with a command. If no rule allows it, it waits for you: approve it, or deny it and say why."

	textNoTools = "Hello! I am the **demo model** of PocketCoder, a coding assistant you host yourself. There is no AI " +
		"behind me, and I was given no tools here, so I can only say that your message arrived: YOURS."

	textWrite = "Next I write a small file, `" + fileName + "`. You see its text before you decide."

	textTourEnd = "That was the whole circle: you wrote, I asked, you decided, the sandbox did it, and the log has every " +
		"step of it.\n\n" +
		"**Try next**\n\n" +
		"- Write `run ls -la`, or `run` and any other command: I ask for exactly that.\n" +
		"- Choose *Deny and explain*: your reason reaches the model.\n" +
		"- Write anything else, and I show you another part."

	textLook = "You wrote: YOURS. A real model would start on that now; I only know my script. Let me show you how an " +
		"assistant looks around: I list the files of the workspace. Rules decide which calls run without a question."

	textLookEnd = "Reading and listing inside the workspace is usually allowed by a rule; commands and changes ask. " +
		"Write once more, and I ask **you** something."

	textAsk = "You wrote: YOURS. Sometimes an assistant needs an answer before it can go on. Then it asks, like this."

	textAskEnd = "A real model would now go on with your answer."

	textSmall = "You wrote: YOURS. That is beyond a script. I can still run a command for you, if a rule or you allow it: write " +
		"`run` and the command."

	fileName = "pocketcoder-demo.md"
	fileText = "# Written by the PocketCoder demo model\n\n" +
		"You approved this file before it was written. Delete it whenever you like.\n"

	question = `{"questions":[{"question":"What would you like to do with PocketCoder first?","header":"First step",` +
		`"options":[{"label":"Write code","description":"Let it work on a project"},` +
		`{"label":"Look around","description":"Let it explain a project"},` +
		`{"label":"Just watch","description":"See what it asks for"}]}]}`
)
