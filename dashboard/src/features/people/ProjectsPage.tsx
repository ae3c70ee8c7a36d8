/** Projects with their members: make one, give and take roles, archive. */
import { Link } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import {
  addProject,
  changeProject,
  listProjects,
  type MemberView,
  type ProjectRole,
  type ProjectView,
  removeMember,
  setMember,
  type Visibility,
} from "@/api/generated";
import { usePolled } from "@/api/polling";
import { useRights } from "@/api/rights";
import { Button } from "@/components/Button";
import { Failed } from "@/components/Failed";
import { NativeSelect, TextInput } from "@/components/mantine";
import { SkeletonRows } from "@/components/SkeletonRows";
import { usePageTitle } from "@/components/usePageTitle";
import { LimitsForm } from "./LimitsForm";
import { limitWords } from "./limits";
import classes from "./PeoplePages.module.css";
import { useChange } from "./useChange";

const ROLES = ["viewer", "member", "admin"];

export function ProjectsPage() {
  usePageTitle("Projects");
  const rights = useRights();
  const { data, error, refetch } = usePolled({
    key: ["people", "projects"],
    fetch: (signal) => listProjects({ signal, throwOnError: true }),
    seconds: 10,
  });
  return (
    <>
      <h1 className={classes.title}>Projects</h1>
      <p className={classes.summary}>
        A viewer reads jobs, a member also submits them, an admin controls all jobs and gives roles.
      </p>
      {data === undefined && error !== null ? <Failed error={error} retry={() => void refetch()} /> : null}
      {data === undefined && error === null ? <SkeletonRows label="The projects are loading" /> : null}
      {data?.items.map((project) => (
        <ProjectPanel key={project.name} project={project} />
      ))}
      {rights.has("project.create") ? <NewProject /> : null}
    </>
  );
}

function ProjectPanel({ project }: { project: ProjectView }) {
  const archived = project.archived_at !== null;
  const rights = useRights();
  const givesRoles = rights.has("member.write", project.name);
  const archive = useChange(() =>
    changeProject({ path: { project: project.name }, body: { archived: !archived }, throwOnError: true }),
  );
  return (
    <section className={classes.panel} aria-label={`Project ${project.name}`}>
      <div className={classes.head}>
        <h2>{project.name}</h2>
        {project.title === "" ? null : <span>{project.title}</span>}
        <span className={classes.fact}>{project.visibility}</span>
        {archived ? <strong>archived</strong> : null}
        <span className={classes.fact}>weight {project.weight}</span>
        <span className={classes.fact}>{limitWords(project.limits)}</span>
        <Link to="/jobs" search={{ project: project.name }}>
          Jobs
        </Link>
        {rights.has("project.write", project.name) ? (
          <Button
            className={classes.end}
            size="xs"
            loading={archive.isPending}
            onClick={() => archive.mutate(undefined)}
          >
            {archived ? `Restore ${project.name}` : `Archive ${project.name}`}
          </Button>
        ) : null}
      </div>
      {archive.error === null ? null : <Failed error={archive.error} />}
      {project.members.length === 0 ? (
        <p className={classes.note}>No person has a role in it.</p>
      ) : (
        <table className={classes.table}>
          <caption className={classes.caption}>Members of {project.name}</caption>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Role</th>
              {givesRoles ? (
                <th scope="col">
                  <span className={classes.caption}>Removal</span>
                </th>
              ) : null}
            </tr>
          </thead>
          <tbody>
            {project.members.map((member) =>
              givesRoles ? (
                <Member key={member.user} project={project.name} member={member} />
              ) : (
                <tr key={member.user}>
                  <th scope="row">{member.user}</th>
                  <td>{member.role}</td>
                </tr>
              ),
            )}
          </tbody>
        </table>
      )}
      {givesRoles ? <NewMember project={project.name} /> : null}
      {rights.has("project.limits") ? <LimitsForm project={project} /> : null}
    </section>
  );
}

function Member({ project, member }: { project: string; member: MemberView }) {
  const path = { project, name: member.user };
  const change = useChange((role: ProjectRole) => setMember({ path, body: { role }, throwOnError: true }));
  const remove = useChange(() => removeMember({ path, throwOnError: true }));
  const error = change.error ?? remove.error;
  return (
    <tr>
      <th scope="row">{member.user}</th>
      <td>
        <NativeSelect
          size="xs"
          className={classes.role}
          aria-label={`Role of ${member.user} in ${project}`}
          data={ROLES}
          value={member.role}
          disabled={change.isPending}
          onChange={(event) => change.mutate(event.currentTarget.value as ProjectRole)}
        />
        {error === null ? null : <Failed error={error} />}
      </td>
      <td>
        <Button size="xs" loading={remove.isPending} onClick={() => remove.mutate(undefined)}>
          Remove {member.user}
        </Button>
      </td>
    </tr>
  );
}

function NewMember({ project }: { project: string }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<ProjectRole>("member");
  const add = useChange(
    () => setMember({ path: { project, name }, body: { role }, throwOnError: true }),
    () => setName(""),
  );
  function submit(event: FormEvent) {
    event.preventDefault();
    add.mutate(undefined);
  }
  return (
    <form className={classes.form} onSubmit={submit}>
      <TextInput
        size="xs"
        label={`Person to add to ${project}`}
        value={name}
        required
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <NativeSelect
        size="xs"
        label="Role"
        data={ROLES}
        value={role}
        onChange={(event) => setRole(event.currentTarget.value as ProjectRole)}
      />
      <Button type="submit" loading={add.isPending} disabled={name === ""}>
        Give the role
      </Button>
      {add.error === null ? null : <Failed error={add.error} />}
    </form>
  );
}

function NewProject() {
  const [name, setName] = useState("");
  const [title, setTitle] = useState("");
  const [visibility, setVisibility] = useState<Visibility>("private");
  const add = useChange(
    () => addProject({ body: { name, title, visibility }, throwOnError: true }),
    () => {
      setName("");
      setTitle("");
    },
  );
  function submit(event: FormEvent) {
    event.preventDefault();
    add.mutate(undefined);
  }
  return (
    <section className={classes.panel} aria-label="New project">
      <div className={classes.head}>
        <h2>New project</h2>
      </div>
      <form className={classes.form} onSubmit={submit}>
        <TextInput label="Name" value={name} required onChange={(event) => setName(event.currentTarget.value)} />
        <TextInput label="Title" value={title} onChange={(event) => setTitle(event.currentTarget.value)} />
        <NativeSelect
          label="Read by"
          data={[
            { value: "private", label: "its members" },
            { value: "internal", label: "each person" },
          ]}
          value={visibility}
          onChange={(event) => setVisibility(event.currentTarget.value as Visibility)}
        />
        <Button variant="filled" type="submit" loading={add.isPending} disabled={name === ""}>
          Make the project
        </Button>
      </form>
      {add.error === null ? null : <Failed error={add.error} />}
    </section>
  );
}
