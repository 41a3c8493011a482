import { mount } from "svelte";
import Docs from "./Docs.svelte";
import "./app.css";

const target = document.getElementById("docs");
if (target) mount(Docs, { target });
